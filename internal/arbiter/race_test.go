//go:build race

package arbiter_test

// underRace bounds the models: the race detector makes a pure function eight times slower and finds nothing in it.
const underRace = true
