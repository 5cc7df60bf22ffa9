package openurl

import (
	"strings"
	"testing"
)

func TestAFileThatSQLiteCannotOpenIsNamed(t *testing.T) {
	t.Parallel()
	if _, _, err := Open(t.Context(), "sqlite:/proc/x.db"); err == nil || !strings.Contains(err.Error(), "/proc/x.db") {
		t.Errorf("%v, want an error with the path", err)
	}
}
