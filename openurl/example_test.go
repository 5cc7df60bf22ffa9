package openurl_test

import (
	"context"
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

func ExampleDefault() {
	getenv := map[string]string{"XDG_STATE_HOME": filepath.Join(os.TempDir(), "holdfast-example")}
	url, err := openurl.Default(func(key string) string { return getenv[key] })
	fmt.Println(strings.HasPrefix(url, "sqlite:"), filepath.Base(url), err)
	_ = os.RemoveAll(getenv["XDG_STATE_HOME"])
	// Output: true holdfast.db <nil>
}
