// Package holdsqlite keeps Holdfast's locks in an SQLite file: for the processes of one machine, without a server.
//
//	store, err := holdsqlite.Open("/var/lib/app/locks.db", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	client := holdfast.New(store, nil)
//
// The file may be one of its own or the application's database: the tables have a prefix, and [InTx] makes a
// transaction on the application's data conditional on a lease. The file is put into WAL mode. It must lie on a local
// file system, in a directory the process may write to.
//
// # Crash and power cut
//
// A killed process loses nothing it was told is done. Ordinary changes are committed with synchronous=NORMAL: the file
// never gets damaged, and the last of them may be lost when the machine itself stops. Nothing that is lost then can
// matter to a lock, since the processes it stood for have stopped too. Changes that speak for a time after their
// process are committed with synchronous=FULL and survive: a note, a lease with a MinHold, a detached lease.
//
// # Clocks
//
// Revisions and tokens follow the wall clock. Sessions are judged by a clock that only moves forward and counts
// suspension (CLOCK_BOOTTIME on Linux); elsewhere, and for sessions stamped before the last boot, by the wall clock.
//
// # Waiting for other writers
//
// SQLite has one writer at a time. Calls wait for it as long as their context allows, a few milliseconds apart at most,
// and never fail with "database is locked". A transaction of the application that writes keeps all locks of its file
// from moving, so it must be short against the sessions' TTL.
//
// # Opening the file elsewhere
//
// A process that has locks open must open the same file through this SQLite driver (modernc.org/sqlite) only. To open
// and close it by other means (os.Open, a backup by copying, another build of SQLite) drops the POSIX locks under
// SQLite's feet, see section 2.2 of https://www.sqlite.org/howtocorrupt.html. Deleting or replacing the file ends all
// leases in it, at the next beat of each session: calls then fail with [ErrReplaced].
package holdsqlite
