package openurl_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfastdb/holdfast"
	"github.com/holdfastdb/holdfast/openurl"
)

func ExampleOpen() {
	ctx := context.Background()
	store, done, err := openurl.Open(ctx, "mem:")
	if err != nil {
		fmt.Println(err)
		return
	}
	client := holdfast.New(store, nil)
	lease, err := client.Lock(ctx, "alarms")
	fmt.Println(lease.Name(), err)
	fmt.Println(client.Close(ctx), done())
	// Output:
	// alarms <nil>
	// <nil> <nil>
}

func ExampleOpenExisting() {
	_, _, err := openurl.OpenExisting(context.Background(), "sqlite:/no/such/locks.db")
	fmt.Println(errors.Is(err, openurl.ErrNoDatabase), err)
	// Output: true there is no database at /no/such/locks.db
}

func ExampleDefault() {
	getenv := map[string]string{"XDG_STATE_HOME": filepath.Join(os.TempDir(), "holdfast-example")}
	url, err := openurl.Default(func(key string) string { return getenv[key] })
	fmt.Println(strings.HasPrefix(url, "sqlite:"), filepath.Base(url), err)
	_ = os.RemoveAll(getenv["XDG_STATE_HOME"])
	// Output: true holdfast.db <nil>
}
