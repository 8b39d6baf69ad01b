package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]place{
		"file":              {path: "file"},
		"./a:b":             {path: "./a:b"},
		"train:/work":       {cluster: "train", path: "/work"},
		"train.1:x/y":       {cluster: "train", rank: 1, path: "x/y"},
		"train.v2:x":        {cluster: "train.v2", path: "x"},
		"cl_01abc.12:":      {cluster: "cl_01abc", rank: 12, path: "."},
		"/abs/with:colon":   {path: "/abs/with:colon"},
		":nothing":          {path: ":nothing"},
		"train:with:colons": {cluster: "train", path: "with:colons"},
	} {
		if got := parsePlace(arg); got != want {
			t.Errorf("%s: %+v, want %+v", arg, got, want)
		}
	}
}

func TestATreeIsCopiedWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for p, text := range map[string]string{"src/a": "1", "src/deep/er/b": "22", "one": "3"} {
		full := filepath.Join(dir, p)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("deep", filepath.Join(dir, "src", "link")); err != nil {
		t.Fatal(err)
	}
	c := transfer{here{}, here{}}
	to := filepath.Join(dir, "to")
	if err := os.Mkdir(to, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, run := range [][2]string{{filepath.Join(dir, "src"), to},
		{filepath.Join(dir, "src"), filepath.Join(dir, "new")}, {filepath.Join(dir, "one"), filepath.Join(to, "two")}} {
		if err := c.run(run[0], run[1]); err != nil {
			t.Fatal(err)
		}
	}
	for p, want := range map[string]string{
		"to/src/a":         "1",
		"to/src/deep/er/b": "22",
		"to/src/link/er/b": "22",
		"new/a":            "1",
		"to/two":           "3",
	} {
		b, err := os.ReadFile(filepath.Join(dir, p))
		info, _ := os.Stat(filepath.Join(dir, p))
		if err != nil || string(b) != want || info.Mode().Perm() != 0o640 {
			t.Errorf("%s: %q %v", p, b, err)
		}
	}
	if err := c.run(filepath.Join(dir, "none"), to); err == nil || !strings.Contains(err.Error(), "none not found") {
		t.Errorf("a missing source: %v", err)
	}
	if err := os.Symlink("..", filepath.Join(dir, "src", "up")); err != nil {
		t.Fatal(err)
	}
	if err := c.run(filepath.Join(dir, "src"), filepath.Join(dir, "circle")); err == nil {
		t.Error("a circle was copied to its end")
	}
}
