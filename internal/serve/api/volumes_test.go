package api_test

import (
	"bytes"
	"testing"

	"github.com/musterhq/muster/internal/data/store"
)

func folderOf(t testing.TB) *store.Folder {
	t.Helper()
	f, err := store.OpenFolder(t.TempDir(), "http://muster.test", bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return f
}
