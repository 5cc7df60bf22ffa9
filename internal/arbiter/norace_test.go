//go:build !race

package arbiter_test

// underRace is false here: the models are explored completely.
const underRace = false
