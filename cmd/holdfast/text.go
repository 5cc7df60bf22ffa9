package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// plain makes text safe to print: names and labels come from other programs, and a terminal obeys control characters.
func plain(text string) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
