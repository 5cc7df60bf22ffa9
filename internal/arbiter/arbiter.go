// Package arbiter holds the rules of a record: who may hold a name, who is next, and which token a grant gets. It is
// pure: no I/O, no clock, no randomness. The client loads a record, applies these rules to a Draft of it, and asks the
// store to swap the result in.
package arbiter
