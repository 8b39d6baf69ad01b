package testnet

import (
	"os"
	"path/filepath"
	"testing"
)

// Stored counts blocks, not lengths, in all folders, and no logs.
func TestStored(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, size := range map[string]int{"a": 4096, "sub/b": 8192, "sub/c.log": 4096} {
		if err := os.WriteFile(filepath.Join(dir, name), make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "hole"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "hole"), 1<<30); err != nil {
		t.Fatal(err)
	}
	if n, err := Stored(dir); n != 12288 || err != nil {
		t.Errorf("%d bytes, want 12288: %v", n, err)
	}
	if n, err := Stored(filepath.Join(dir, "none")); n != 0 || err != nil {
		t.Errorf("a folder that is gone: %d bytes, %v", n, err)
	}
}
