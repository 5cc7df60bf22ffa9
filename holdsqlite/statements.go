package holdsqlite

import "strings"

// schemaVersion is raised by every change of the tables below that an older program could not live with.
const schemaVersion = 1

// Every statement of this package. The prefix of the tables, checked against [a-z][a-z0-9_]*, takes the place of
// {prefix}; it is the only thing ever formatted in. SQLite has one writer at a time and a statement sees one snapshot,
// so each is serializable by itself; those that say so run inside BEGIN IMMEDIATE, which takes the write lock first.
const (
	// Names are TEXT with the BINARY collation: compared byte by byte, trailing blanks too. Setup refuses a file in
	// UTF-16, where that order would not be the order of the UTF-8 bytes.
	createRecords = `CREATE TABLE IF NOT EXISTS {prefix}records (
  name       TEXT    NOT NULL PRIMARY KEY COLLATE BINARY,
  revision   INTEGER NOT NULL,
  free       INTEGER NOT NULL,
  state      TEXT    NOT NULL,
  inbox      TEXT    NOT NULL DEFAULT '',
  note       BLOB,
  note_token INTEGER,
  guard      INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID`

	// The stamp of a beat is (clock, us) and, for judges that do not share the clock, wall_us. The same for the death.
	createSessions = `CREATE TABLE IF NOT EXISTS {prefix}sessions (
  id           TEXT    NOT NULL PRIMARY KEY,
  nonce        TEXT    NOT NULL,
  ttl_us       INTEGER NOT NULL,
  label        TEXT    NOT NULL,
  host         TEXT    NOT NULL,
  pid          INTEGER NOT NULL,
  program      TEXT    NOT NULL,
  boot         TEXT    NOT NULL,
  pid_ns       TEXT    NOT NULL,
  time_ns      TEXT    NOT NULL,
  local_pid    INTEGER NOT NULL,
  started      INTEGER NOT NULL,
  beat_clock   TEXT    NOT NULL,
  beat_us      INTEGER NOT NULL,
  beat_wall_us INTEGER NOT NULL,
  notice       INTEGER NOT NULL DEFAULT 0,
  dead         INTEGER NOT NULL DEFAULT 0,
  dead_clock   TEXT    NOT NULL DEFAULT '',
  dead_us      INTEGER NOT NULL DEFAULT 0,
  dead_wall_us INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID`

	createMeta = `CREATE TABLE IF NOT EXISTS {prefix}meta (
  key   TEXT    NOT NULL PRIMARY KEY,
  value INTEGER NOT NULL
) WITHOUT ROWID`

	insertVersion = `INSERT INTO {prefix}meta (key, value) VALUES ('schema', ?) ON CONFLICT (key) DO NOTHING`
	selectVersion = `SELECT value FROM {prefix}meta WHERE key = 'schema'`
	selectTable   = `SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = '{prefix}meta'`
	commitOne     = `INSERT INTO {prefix}meta (key, value) VALUES ('commits', 1)
ON CONFLICT (key) DO UPDATE SET value = value + 1`

	// Grab. The conflict branch leaves the note alone. One change counted means that this call took the name.
	grab = `INSERT INTO {prefix}records (name, revision, free, state) VALUES (?1, ?2, 0, ?3)
ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, free = 0, state = excluded.state, inbox = ''
WHERE free = 1 AND revision < excluded.revision`

	swap = `UPDATE {prefix}records SET revision = ?1, free = ?2, state = ?3, inbox = ''
WHERE name = ?4 AND revision = ?5`
	swapNote = `UPDATE {prefix}records SET revision = ?1, free = ?2, state = ?3, inbox = '', note = ?6, note_token = ?7
WHERE name = ?4 AND revision = ?5`

	// The inbox is ASCII, but its limit is in bytes, so count those.
	post = `UPDATE {prefix}records SET inbox = inbox || ?2, revision = revision + 1
WHERE name = ?1 AND free = 0 AND revision < ?3 AND length(CAST(inbox AS BLOB)) + length(CAST(?2 AS BLOB)) <= ?4`

	// ?1 is a JSON list of [name, known revision]. An absent record differs from a known revision only.
	load = `SELECT k.value ->> 0, r.revision, r.free, r.state, r.inbox, r.note, r.note_token
FROM json_each(?1) AS k LEFT JOIN {prefix}records AS r ON r.name = k.value ->> 0
WHERE coalesce(r.revision, 0) IS NOT k.value ->> 1
ORDER BY k.key`

	// ?2 is an upper bound that no name with the prefix reaches, or empty. The blob casts compare bytes.
	list = `SELECT name, revision, free, state, inbox, note, note_token FROM {prefix}records
WHERE name >= ?1 AND (length(?2) = 0 OR name < CAST(?2 AS TEXT)) AND name > ?3
  AND (?4 = 0 OR free = 0) AND (?5 = 0 OR revision < ?5)
ORDER BY name LIMIT ?6`

	pruneRecords = `DELETE FROM {prefix}records WHERE free = 1 AND note IS NULL AND revision < ?1 AND name IN
(SELECT name FROM {prefix}records WHERE free = 1 AND note IS NULL AND revision < ?1 LIMIT ?2)`

	// Those below but sessionsByID run inside BEGIN IMMEDIATE, with the clock read after it.
	join = `INSERT INTO {prefix}sessions (id, nonce, ttl_us, label, host, pid, program,
  boot, pid_ns, time_ns, local_pid, started, beat_clock, beat_us, beat_wall_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	joined = `SELECT count(*) FROM {prefix}sessions WHERE id = ?1 AND nonce = ?2 AND dead = 0`

	beat = `UPDATE {prefix}sessions SET nonce = ?3, beat_clock = ?4, beat_us = ?5, beat_wall_us = ?6
WHERE id = ?1 AND dead = 0 AND nonce IN (?2, ?3) RETURNING notice`

	stamps = `SELECT id, ttl_us, beat_clock, beat_us, beat_wall_us, dead, dead_clock, dead_us, dead_wall_us
FROM {prefix}sessions WHERE id IN (SELECT value FROM json_each(?1))`
	allStamps = `SELECT id, ttl_us, beat_clock, beat_us, beat_wall_us, dead, dead_clock, dead_us, dead_wall_us
FROM {prefix}sessions`

	markDead = `UPDATE {prefix}sessions SET dead = 1, dead_clock = ?2, dead_us = ?3, dead_wall_us = ?4
WHERE id = ?1 AND dead = 0`
	restamp = `UPDATE {prefix}sessions SET beat_clock = ?2, beat_us = ?3, beat_wall_us = ?4 WHERE id = ?1 AND dead = 0`

	notify        = `UPDATE {prefix}sessions SET notice = notice + 1 WHERE id = ?1`
	deleteSession = `DELETE FROM {prefix}sessions WHERE id = ?1 AND dead = 1`

	sessionsByID = `SELECT s.id, nonce, ttl_us, label, host, pid, program, boot, pid_ns, time_ns, local_pid, started,
  beat_clock, beat_us, beat_wall_us, dead
FROM json_each(?1) AS k JOIN {prefix}sessions AS s ON s.id = k.value ORDER BY k.key`

	// The guarded transaction. The write comes first: it takes the lock that a take-over would have to take.
	guard      = `UPDATE {prefix}records SET guard = guard + 1 WHERE name = ?1`
	guardState = `SELECT state FROM {prefix}records WHERE name = ?1`
	guardTTL   = `SELECT (SELECT min(ttl_us) FROM {prefix}sessions WHERE dead = 0 AND (id = ?1 OR beat_clock = ?2 AND beat_us + ttl_us > ?3))
FROM {prefix}sessions WHERE id = ?1 AND dead = 0`

	databaseFile = `SELECT file FROM pragma_database_list WHERE name = 'main'`
)

// sql puts the prefix of the store's tables into a statement.
func (s *Store) sql(statement string) string {
	return strings.ReplaceAll(statement, "{prefix}", s.prefix)
}
