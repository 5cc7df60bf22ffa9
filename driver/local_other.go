//go:build !linux

package driver

// Here identifies this process. On this system it is always the zero Local: there is no boot id and no start time that
// cannot repeat, so nothing is certain and a dead process is noticed by its session's TTL.
func Here() Local { return Local{} }

// Gone reports whether there is proof that process l is gone. On this system there never is.
func (l Local) Gone() bool { return false }
