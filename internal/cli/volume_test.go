package cli

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A folder goes to a volume and comes back, through the server and its store; a second upload sends what is new.
func TestCopyToAndFromAVolume(t *testing.T) {
	t.Parallel()
	p := newPlatform(t)
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	p.ok("volume", "create", "data", "--size", "10")
	from, big := t.TempDir(), make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(big)
	files := map[string][]byte{"big.bin": big, "sub/small.txt": []byte("small"), "sub/empty": nil}
	write := func(name string, b []byte) {
		t.Helper()
		at := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range files {
		write(name, b)
	}

	if dry := p.json("volume", "cp", from, "data:/in", "--dry-run"); dry["files"] != 3.0 || dry["seq"] != nil {
		t.Errorf("dry run: %v", dry)
	}
	if out := p.ok("volume", "snapshots", "data"); strings.Contains(out, "upload") {
		t.Errorf("the dry run made a snapshot:\n%s", out)
	}
	if out := p.ok("volume", "cp", from, "data:/in", "--label", "first"); !strings.HasPrefix(out,
		"Snapshot 1 has 3 files of 5.2 MB") {
		t.Errorf("upload:\n%s", out)
	}
	if out := p.ok("volume", "snapshots", "data"); !strings.Contains(out, "first") {
		t.Errorf("no snapshot has the label:\n%s", out)
	}
	if again := p.json("volume", "cp", from, "data:/in"); again["unchanged"] != true || again["moved_bytes"] != 0.0 {
		t.Errorf("the same upload again: %v", again)
	}
	write("more", []byte("more"))
	if second := p.json("volume", "cp", from, "data:/in"); second["seq"] != 2.0 || second["files"] != 4.0 ||
		second["moved_bytes"].(float64) > 1<<20 {
		t.Errorf("the second upload: %v", second)
	}
	if left, err := filepath.Glob(filepath.Join(p.home, ".cache", "muster", "uploads", "*")); err != nil || len(left) > 0 {
		t.Errorf("journals that are left: %v %v", left, err)
	}

	to := filepath.Join(t.TempDir(), "to")
	p.ok("volume", "cp", "data:/in", to)
	files["more"] = []byte("more")
	for name, b := range files {
		if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, b) {
			t.Errorf("%s comes back with %d bytes of %d: %v", name, len(got), len(b), err)
		}
	}
	p.ok("volume", "cp", "data:/in/sub/small.txt", filepath.Join(to, "one"))
	if got, err := os.ReadFile(filepath.Join(to, "one")); string(got) != "small" {
		t.Errorf("a single file: %q %v", got, err)
	}
	if first := p.json("volume", "cp", "data:/", t.TempDir(), "--seq", "1"); first["files"] != 3.0 {
		t.Errorf("the first snapshot: %v", first)
	}

	for name, c := range map[string]struct {
		args []string
		code int
		text string
	}{
		"no volume":      {[]string{from, to}, 2, "one of the two has to be in a volume"},
		"two volumes":    {[]string{"data:/a", "data:/b"}, 2, "one of the two has to be in a volume"},
		"unknown volume": {[]string{from, "other:/"}, 3, "volume not found"},
		"leads up":       {[]string{from, "data:/a/../../b"}, 2, "no .."},
		"no such file":   {[]string{filepath.Join(from, "none"), "data:/"}, 2, "none"},
		"not in it":      {[]string{"data:/none", to}, 3, "not found in the volume"},
		"no snapshot":    {[]string{"data:/", to, "--seq", "9"}, 3, "snapshot not found"},
	} {
		r := p.run("", append([]string{"volume", "cp"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.errs, c.text) {
			t.Errorf("%s: exit %d, want %d (%s)\n%s", name, r.code, c.code, c.text, r.errs)
		}
	}
}
