package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/driver"
)

// duration is a flag: seconds as in flock(1), 1.5, or a Go duration, 90s.
type duration struct {
	d   time.Duration
	set bool
}

func (d *duration) Set(text string) error {
	seconds, err := strconv.ParseFloat(text, 64)
	switch {
	case err == nil && seconds >= 0 && seconds <= holdfast.MaxMaxHold.Seconds():
		d.d = time.Duration(math.Ceil(seconds * 1e9))
	case err == nil || errors.Is(err, strconv.ErrRange): // NaN and infinities too
		return errDuration
	default:
		if d.d, err = time.ParseDuration(text); err != nil {
			return errors.New("want seconds, as in 1.5, or a duration, as in 90s or 2h30m")
		}
		if d.d < 0 || d.d > holdfast.MaxMaxHold {
			return errDuration
		}
	}
	d.set = true
	return nil
}

var errDuration = errors.New("a duration is at least 0 and at most ten years")

func (d *duration) String() string {
	if !d.set {
		return ""
	}
	return d.d.String()
}

func (d *duration) Type() string { return "duration" }

// short writes a duration without the zeros that its String has: 1h, not 1h0m0s.
func short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// permits is the flag N/K: N permits of K.
type permits struct{ n, limit int }

func (p *permits) Set(text string) error {
	n, limit, _ := strings.Cut(text, "/")
	var err, limitErr error
	p.n, err = number(n)
	p.limit, limitErr = number(limit)
	if err != nil || limitErr != nil || p.n < 1 || p.limit < p.n || p.limit >= driver.All {
		return errors.New("want N/K, N permits of K, with 1 <= N <= K <= 1073741823")
	}
	return nil
}

func (p *permits) String() string {
	if p.limit == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.n, p.limit)
}

func (p *permits) Type() string { return "N/K" }

// exitStatus is a flag: a number from 0 to 255.
type exitStatus int

func (s *exitStatus) Set(text string) error {
	n, err := number(text)
	if err != nil || n > 255 {
		return errors.New("want an exit status, 0 to 255")
	}
	*s = exitStatus(n)
	return nil
}

func (s *exitStatus) String() string { return strconv.Itoa(int(*s)) }

func (s *exitStatus) Type() string { return "number" }

// number reads plain decimal digits.
func number(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err
}
