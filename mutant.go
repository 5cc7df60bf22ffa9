package holdfast

// mutant takes rules of the protocol away, one at a time, so that the tests can show that they find the two holders or
// the lost waiter that each rule prevents. The zero value, all rules kept, is the only one outside the tests.
type mutant struct {
	noSettling     bool // "not found" settles a request of unknown outcome
	noPostFence    bool // posts apply however late they arrive
	trustFromReply bool // the trust window counts from the reply of a beat
	missingIsDead  bool // a session without a row counts as dead
	olderLoadWins  bool // whatever a Load brings replaces what is known
}
