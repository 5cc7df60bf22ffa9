// Command holdfast runs a command while it holds a lock that lives in a database, and shows and breaks such locks.
//
//	holdfast run NAME -- CMD [ARG...]
//
// See "holdfast help run" for what a lock does, and for the exit statuses.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(Main(context.Background(), os.Args, os.Environ(), os.Stdin, os.Stdout, os.Stderr))
}
