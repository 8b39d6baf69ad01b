package cluster

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/pkg/sftp"
)

func TestPlaces(t *testing.T) {
	t.Parallel()
	for arg, want := range map[string]place{
		"file":              {path: "file"},
		"./a:b":             {path: "./a:b"},
		"train:/work":       {cluster: "train", path: "/work"},
		"train.1:x/y":       {cluster: "train.1", path: "x/y"},
		"llama-3.1:x":       {cluster: "llama-3.1", path: "x"},
		"cl_01abc.12:":      {cluster: "cl_01abc.12", path: "."},
		"train:~":           {cluster: "train", path: "."},
		"train:~/":          {cluster: "train", path: "."},
		"train:~/hf/x":      {cluster: "train", path: "hf/x"},
		"train:./~x":        {cluster: "train", path: "./~x"},
		"/abs/with:colon":   {path: "/abs/with:colon"},
		":nothing":          {path: ":nothing"},
		"train:with:colons": {cluster: "train", path: "with:colons"},
	} {
		if got, err := parsePlace(arg); got != want || err != nil {
			t.Errorf("%s: %+v %v, want %+v", arg, got, err, want)
		}
	}
	if _, err := parsePlace("train:~ada/x"); err == nil || !strings.Contains(err.Error(), "./~ada/x") {
		t.Errorf("another user's home: %v", err)
	}
}

// remote returns a client of an SFTP server that serves a folder as its home.
func remote(t *testing.T, home string) there {
	t.Helper()
	near, far := net.Pipe()
	s, err := sftp.NewServer(far, sftp.WithServerWorkingDirectory(home))
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve() }()
	c, err := sftp.NewClientPipe(near, near, sftp.UseConcurrentWrites(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); near.Close(); s.Close() })
	return there{c}
}

// copied is a transfer that notes what it reports.
func copied(t *testing.T, from, to tree) (c *transfer, reports *[]string) {
	reports = new([]string)
	return &transfer{ctx: t.Context(), from: from, to: to, report: func(err error) {
		*reports = append(*reports, errorText(err))
	}}, reports
}

func write(t *testing.T, files map[string]string) {
	t.Helper()
	for p, text := range files {
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
}

func link(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// directions are an upload and a download between two folders. Paths there begin with the folder.
func directions(t *testing.T, f func(t *testing.T, from, to tree)) {
	for name, down := range map[string]bool{"Up": false, "Down": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far := remote(t, t.TempDir())
			if down {
				f(t, far, here{})
			} else {
				f(t, here{}, far)
			}
		})
	}
}

func TestCopy_ATreeIsCopiedWhole(t *testing.T) {
	t.Parallel()
	directions(t, func(t *testing.T, from, to tree) {
		dir := t.TempDir()
		in := func(p string) string { return filepath.Join(dir, p) }
		big := strings.Repeat("0123456789", 1<<18)
		write(t, map[string]string{in("src/a"): "1", in("src/deep/er/b"): "22", in("one"): "3", in("big"): big})
		link(t, "deep", in("src/link"))
		if err := os.Mkdir(in("to"), 0o755); err != nil {
			t.Fatal(err)
		}
		c, reports := copied(t, from, to)
		for _, run := range [][2]string{{"src", "to"}, {"src", "new"}, {"one", "to/two"}, {"big", "to"}} {
			if err := c.all([]string{in(run[0])}, in(run[1])); err != nil || len(*reports) > 0 {
				t.Fatalf("%v: %v %v", run, err, *reports)
			}
		}
		for p, want := range map[string]string{"to/src/a": "1", "to/src/deep/er/b": "22", "to/src/link/er/b": "22",
			"new/a": "1", "to/two": "3", "to/big": big} {
			b, err := os.ReadFile(in(p))
			info, _ := os.Stat(in(p))
			if err != nil || string(b) != want || info.Mode().Perm() != 0o640 {
				t.Errorf("%s: %d bytes %v", p, len(b), err)
			}
		}
		for args, want := range map[string]string{"none to": "none not found", "one none/": "none/ not found",
			"one one none": "several sources need a folder", "one one to/two": "is not a folder"} {
			paths := strings.Fields(args)
			for i := range paths {
				paths[i] = dir + "/" + paths[i]
			}
			if err := c.all(paths[:len(paths)-1], paths[len(paths)-1]); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", args, err)
			}
		}
	})
}

// An entry that cannot be copied is named, and does not keep those after it from being copied.
func TestCopy_GoesOnAfterAnOddEntry(t *testing.T) {
	t.Parallel()
	directions(t, func(t *testing.T, from, to tree) {
		dir := t.TempDir()
		in := func(p string) string { return filepath.Join(dir, p) }
		write(t, map[string]string{in("src/a"): "a", in("src/sub/b"): "b", in("src/z"): "z", in("src/folder"): "f",
			in("new/folder/x"): ""})
		link(t, "/nowhere", in("src/latest"))
		link(t, "..", in("src/sub/up"))
		link(t, "loop", in("src/loop"))
		if err := syscall.Mkfifo(in("src/pipe"), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("unix", in("src/sock"))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		link(t, "/dev/null", in("src/null"))
		c, reports := copied(t, from, to)
		if err := c.all([]string{in("src") + "/."}, in("new")); err == nil ||
			errorText(err) != "not copied: 7; files copied: 3" {
			t.Errorf("%v", err)
		}
		for _, want := range []string{"src/latest is a link to /nowhere, which is not found",
			"src/sub/up is a link to a folder", "src/loop", "src/pipe is a FIFO", "src/sock is a socket",
			"src/null is a device", "new/folder"} {
			if !slices.ContainsFunc(*reports, func(s string) bool { return strings.Contains(s, want) }) {
				t.Errorf("%q is not in %q", want, *reports)
			}
		}
		for _, p := range []string{"new/a", "new/sub/b", "new/z"} {
			if _, err := os.Stat(in(p)); err != nil {
				t.Error(err)
			}
		}
		*reports = nil
		if err := c.all([]string{in("none"), in("src/a"), in("src/pipe")}, in("new/sub")); err == nil || len(*reports) != 2 {
			t.Errorf("several sources: %v %q", err, *reports)
		}
		if _, err := os.Stat(in("new/sub/a")); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a tree whose files break off in the middle.
type stuck struct{ tree }

func (s stuck) Open(p string) (io.ReadCloser, error) {
	f, err := s.tree.Open(p)
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(f, 2), brokenReader{}), f}, err
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("it broke off") }

// A copy that breaks off leaves the old file as it was, and no half of a new one.
func TestCopy_BrokenOffKeepsTheOldFile(t *testing.T) {
	t.Parallel()
	directions(t, func(t *testing.T, from, to tree) {
		dir := t.TempDir()
		in := func(p string) string { return filepath.Join(dir, p) }
		write(t, map[string]string{in("src"): "new text", in("to/old"): "old text"})
		link(t, "old", in("to/link"))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		names := func() string {
			all, err := os.ReadDir(in("to"))
			if err != nil {
				t.Fatal(err)
			}
			var out []string
			for _, e := range all {
				b, _ := os.ReadFile(in("to/" + e.Name()))
				out = append(out, e.Name()+"="+string(b))
			}
			return strings.Join(out, " ")
		}
		before := names()
		for _, target := range []string{"to/old", "to/link", "to/new"} {
			c, _ := copied(t, stuck{from}, to)
			if err := c.all([]string{in("src")}, in(target)); err == nil || strings.Contains(err.Error(), ".muster") {
				t.Errorf("%s: %v", target, err)
			}
			c, _ = copied(t, from, to)
			if c.ctx = ended; c.all([]string{in("src")}, in(target)) == nil {
				t.Errorf("%s: it was interrupted, and ended well", target)
			}
		}
		if after := names(); after != before {
			t.Errorf("%s became %s", before, after)
		}
		c, _ := copied(t, from, to)
		if err := c.all([]string{in("src")}, in("to/link")); err != nil {
			t.Fatal(err)
		}
		if after := names(); after != "link=new text old=new text" {
			t.Errorf("through a link: %s", after)
		}
		if info, err := os.Lstat(in("to/link")); err != nil || info.Mode()&fs.ModeSymlink == 0 {
			t.Errorf("the link is gone: %v %v", info, err)
		}
	})
}

func TestCopy_PatternsOfANode(t *testing.T) {
	t.Parallel()
	home, to := t.TempDir(), t.TempDir()
	write(t, map[string]string{home + "/out/a.pt": "", home + "/out/b.pt": "", home + "/out/.c.pt": "",
		home + "/out/d.txt": "", home + "/run1/x[1].log": "", home + "/run2/x1.log": ""})
	for pattern, want := range map[string]string{
		home + "/out/*.pt": "a.pt b.pt", "out/?.*": "a.pt b.pt d.txt", "out/.*": ".c.pt", "*/x1.log": "x1.log",
		"run*/*": "x1.log x[1].log", "run1/x[1].log": "x[1].log", "run[2-9]/x[0-9].log": "x1.log", "r*1": "run1",
		"out/[!a]*": "b.pt d.txt", "out/[!ab-].*": "d.txt", "ru[!]]1/x[[]1[]].log": "x[1].log",
		`out/[\!a]*`: "a.pt", "*1/": "run1", "out/[!-]*": "a.pt b.pt d.txt",
	} {
		dir, err := os.MkdirTemp(to, "")
		if err != nil {
			t.Fatal(err)
		}
		c, reports := copied(t, remote(t, home), here{})
		err = c.all([]string{pattern}, dir)
		all, _ := filepath.Glob(dir + "/*")
		hidden, _ := filepath.Glob(dir + "/.c*")
		var got []string
		for _, p := range append(hidden, all...) {
			got = append(got, filepath.Base(p))
		}
		if slices.Sort(got); err != nil || strings.Join(slices.Compact(got), " ") != want || len(*reports) > 0 {
			t.Errorf("%s: %v %v %v", pattern, got, err, *reports)
		}
	}
	c, _ := copied(t, remote(t, home), here{})
	for pattern, want := range map[string]string{"out/*.bin": "nothing matches out/*.bin", "out/[": "not a pattern",
		"none/*": "nothing matches", "out/[!": "not a pattern", "out/a*/": "nothing matches out/a*/"} {
		if err := c.all([]string{pattern}, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

// A name on a node cannot write to the terminal.
func TestCopy_NamesInErrorsAreInOneLine(t *testing.T) {
	t.Parallel()
	home, to := t.TempDir(), t.TempDir()
	link(t, "/nowhere", home+"/a\x1b[2J\r\nb")
	for _, source := range []string{"*b", "."} {
		c, reports := copied(t, remote(t, home), here{})
		err := inOneLine(c.all([]string{source}, to))
		if got := strings.Join(append(*reports, errorText(err)), ""); !strings.Contains(got, "a [2J  b is a link to") ||
			strings.ContainsAny(got, "\x1b\r\n") {
			t.Errorf("%s: %q", source, got)
		}
	}
	if err := inOneLine(errors.New("a\x1b")); err.Error() != "a " {
		t.Errorf("%q", err)
	}
}

// A node that lists names which lead out of the folder writes nothing outside of the target.
func TestCopy_ImpossibleNamesAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{dir + "/src/a": "a"})
	c, reports := copied(t, evil{here{}}, here{})
	if err := c.all([]string{dir + "/src"}, dir+"/to"); err == nil || len(*reports) != 4 || c.copied != 1 {
		t.Errorf("%v %q", err, *reports)
	}
}

// A source whose last part leads out of the folder on a system of the target's kind is not copied.
func TestCopy_ImpossibleNamesOfSourcesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, map[string]string{dir + `/src/..\..\x`: "x"})
	c, _ := copied(t, here{}, windows{here{}})
	err := c.all([]string{dir + `/src/..\..\x`}, dir)
	if all, _ := os.ReadDir(dir); err == nil || !strings.Contains(err.Error(), "not possible here") || len(all) != 1 {
		t.Errorf("%v %v", err, all)
	}
}

// windows separates the parts of a path as Windows does.
type windows struct{ tree }

func (windows) Base(p string) string { return p[strings.LastIndexAny(p, `/\`)+1:] }

// While a copy is under way, only its owner can read what has arrived. Where modes cannot be set, the copy stays.
func TestCopy_ModesOfAFileThatIsNew(t *testing.T) {
	t.Parallel()
	directions(t, func(t *testing.T, from, to tree) {
		dir := t.TempDir()
		in := func(p string) string { return filepath.Join(dir, p) }
		write(t, map[string]string{in("src"): "new text", in("to/old"): "old text"})
		for _, target := range []string{"to/old", "to/new"} {
			c, _ := copied(t, from, modeless{to, t})
			err := c.all([]string{in("src")}, in(target))
			if err == nil || !strings.Contains(err.Error(), "no modes") || strings.Contains(errorText(err), ".muster") {
				t.Errorf("%s: %v", target, err)
			}
			if b, err := os.ReadFile(in(target)); string(b) != "new text" {
				t.Errorf("%s: %q %v", target, b, err)
			}
		}
		if all, err := os.ReadDir(in("to")); len(all) != 2 {
			t.Errorf("%v %v", all, err)
		}
	})
}

// modeless cannot set the mode of a file. A file that another user can read is an error.
type modeless struct {
	tree
	t *testing.T
}

func (m modeless) Chmod(p string, _ fs.FileMode) error {
	if info, err := os.Stat(p); err != nil || info.Mode().Perm() != 0o600 {
		m.t.Errorf("%s: %v %v", p, info, err)
	}
	return &fs.PathError{Op: "chmod", Path: p, Err: errors.New("no modes")}
}

type evil struct{ tree }

func (e evil) ReadDir(p string) ([]entry, error) {
	all, err := e.tree.ReadDir(p)
	return append([]entry{{name: "../out"}, {name: ".."}, {name: "a/b"}, {name: ""}}, all...), err
}

// A connection that is lost ends the copy with one error, not with one for each entry.
func TestCopy_LostConnectionEndsIt(t *testing.T) {
	t.Parallel()
	home, to := t.TempDir(), t.TempDir()
	write(t, map[string]string{home + "/src/a": "", home + "/src/b": "", home + "/src/c": ""})
	far := remote(t, home)
	c, reports := copied(t, cutting{far}, here{})
	err := c.all([]string{"src"}, to)
	if err == nil || !strings.Contains(err.Error(), "connection to the node was lost; files copied: 0") ||
		len(*reports) > 0 {
		t.Errorf("%v %q", err, *reports)
	}
}

// cutting loses its connection at the first file.
type cutting struct{ there }

func (c cutting) Open(p string) (io.ReadCloser, error) {
	c.Client.Close()
	for _, err := c.Client.Stat(p); !errors.Is(err, sftp.ErrSSHFxConnectionLost); _, err = c.Client.Stat(p) {
	}
	return c.there.Open(p)
}
