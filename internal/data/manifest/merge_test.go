package manifest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/data/chunk"
)

// chunks is a store of chunks in memory.
type chunks struct {
	t    *testing.T
	all  map[chunk.ID][]byte
	read int
}

func newChunks(t *testing.T) *chunks { return &chunks{t: t, all: map[chunk.ID][]byte{}} }

func (c *chunks) put(b []byte) (Ref, error) {
	id := chunk.ID(sha256.Sum256(b))
	c.all[id] = slices.Clone(b)
	return Ref{ID: id, Pack: 1, Length: uint32(len(b) + chunk.Overhead + 1), Size: uint32(len(b))}, nil
}

func (c *chunks) merger() Merger {
	return Merger{Writer: Writer{Put: c.put}, Reader: Reader{Chunk: func(_ context.Context, r Ref) ([]byte, error) {
		c.read++
		return c.all[r.ID], nil
	}}}
}

// tree makes a tree of files, of which the keys are the paths. A value "mode:NNN text" sets the permissions of a file,
// "time:N text" its time, "-> x" makes a symbolic link, and a path that ends in a slash is an empty directory.
func (c *chunks) tree(files map[string]string) Ref {
	c.t.Helper()
	w := c.merger().Writer
	root := Root{}
	var build func(e *Entry, files map[string]string)
	build = func(e *Entry, files map[string]string) {
		below := map[string]map[string]string{}
		var entries []Entry
		for path, content := range files {
			if dir, rest, ok := strings.Cut(path, "/"); ok {
				if below[dir] == nil {
					below[dir] = map[string]string{}
				}
				if rest != "" {
					below[dir][rest] = content
				}
				continue
			}
			root.Files++
			if target, ok := strings.CutPrefix(content, "-> "); ok {
				entries = append(entries, Entry{Name: path, Kind: Symlink, Mode: 0o777, Target: target})
				continue
			}
			f := Entry{Name: path, Kind: File, Mode: 0o644, Size: int64(len(content))}
			if mode, text, ok := strings.Cut(content, " "); ok && strings.HasPrefix(mode, "mode:") {
				_, _ = fmt.Sscanf(mode, "mode:%o", &f.Mode)
				content, f.Size = text, int64(len(text))
			}
			if at, text, ok := strings.Cut(content, " "); ok && strings.HasPrefix(at, "time:") {
				_, _ = fmt.Sscanf(at, "time:%d", &f.MTime)
				content, f.Size = text, int64(len(text))
			}
			ref, _ := c.put([]byte(content))
			f.Body.Refs = []Ref{ref}
			root.LogicalBytes += f.Size
			entries = append(entries, f)
		}
		for name, files := range below {
			d := Entry{Name: name, Kind: Dir, Mode: 0o755}
			build(&d, files)
			root.Dirs++
			entries = append(entries, d)
		}
		if err := w.Dir(e, entries); err != nil {
			c.t.Fatal(err)
		}
	}
	root.Dir = Entry{Kind: Dir, Mode: 0o755}
	build(&root.Dir, files)
	ref, err := w.Root(root)
	if err != nil {
		c.t.Fatal(err)
	}
	return ref
}

// list is the inverse of tree. It checks what the root says.
func (c *chunks) list(ref Ref) map[string]string {
	c.t.Helper()
	r := c.merger().Reader
	root, err := r.Root(c.t.Context(), ref)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]string{}
	found := Root{Dir: root.Dir}
	var walk func(e Entry, path string)
	walk = func(e Entry, path string) {
		entries, err := r.Dir(c.t.Context(), e)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(entries) == 0 && path != "" {
			out[path] = ""
		}
		for _, k := range entries {
			switch k.Kind {
			case Dir:
				found.Dirs++
				walk(k, path+k.Name+"/")
			case Symlink:
				found.Files++
				out[path+k.Name] = "-> " + k.Target
			default:
				found.Files++
				found.LogicalBytes += k.Size
				out[path+k.Name] = string(c.all[k.Body.Refs[0].ID])
				if k.Mode != 0o644 {
					out[path+k.Name] = fmt.Sprintf("mode:%o %s", k.Mode, out[path+k.Name])
				}
			}
		}
	}
	walk(root.Dir, "")
	if found.Files != root.Files || found.Dirs != root.Dirs || found.LogicalBytes != root.LogicalBytes {
		c.t.Errorf("the root says %d files, %d directories, %d bytes; there are %d, %d, %d", root.Files, root.Dirs,
			root.LogicalBytes, found.Files, found.Dirs, found.LogicalBytes)
	}
	return out
}

type files = map[string]string

// with returns a copy of files with changes; "" removes a path.
func with(base files, change files) files {
	out := maps.Clone(base)
	if out == nil {
		out = files{}
	}
	maps.Copy(out, change)
	maps.DeleteFunc(out, func(_, v string) bool { return v == "gone" })
	return out
}

func TestMerge(t *testing.T) {
	t.Parallel()
	base := files{"code/a.py": "a", "code/b.py": "b", "old/x": "x", "old/y": "y", "top": "t"}
	for name, tc := range map[string]struct {
		head   files // nil: base
		from   []files
		to     []files
		want   files
		differ string // the conflict
	}{
		"each its own files": {
			to:   []files{with(base, files{"ckpt/0": "zero", "ckpt/.metadata": "m"}), with(base, files{"ckpt/1": "one"})},
			want: with(base, files{"ckpt/0": "zero", "ckpt/1": "one", "ckpt/.metadata": "m"}),
		},
		"into an empty volume": {
			head: files{}, from: []files{{}, {}, {}},
			to:   []files{{"a/0": "0"}, {"a/1": "1"}, {"b": "2"}},
			want: files{"a/0": "0", "a/1": "1", "b": "2"},
		},
		"the same by two": {
			to:   []files{with(base, files{"log": "l", "n/e/w": "1"}), with(base, files{"log": "l", "n/e/w": "1"})},
			want: with(base, files{"log": "l", "n/e/w": "1"}),
		},
		"a path by two, differently": {
			to:     []files{with(base, files{"d/log": "0"}), with(base, files{"d/log": "1"})},
			differ: "/d/log was changed differently by ranks 0 and 1",
		},
		"permissions by two, differently": {
			to:     []files{with(base, files{"log": "mode:600 l"}), with(base, files{"log": "mode:640 l"})},
			differ: "/log was changed differently by ranks 0 and 1",
		},
		"a file and a directory": {
			to:     []files{with(base, files{"log": "0"}), with(base, files{"log/a": "1"})},
			differ: "/log was changed differently by ranks 0 and 1",
		},
		"removed by one, changed by the other": {
			to:     []files{with(base, files{"top": "gone"}), with(base, files{"top": "new"})},
			differ: "/top was changed differently by ranks 0 and 1",
		},
		"removed by one, unchanged in the other": {
			to:   []files{with(base, files{"top": "gone", "old/x": "gone"}), base},
			want: with(base, files{"top": "gone", "old/x": "gone"}),
		},
		"removed by both": {
			to: []files{with(base, files{"old/x": "gone", "old/y": "gone"}), with(base, files{"old/x": "gone",
				"old/y": "gone"})},
			want: with(base, files{"old/x": "gone", "old/y": "gone"}),
		},
		"each removes a folder of which each had a part": {
			head: files{"c/0": "0", "c/1": "1", "t": "t"}, from: []files{{"c/0": "0"}, {"c/1": "1", "t": "t"}},
			to:   []files{{"z": "z"}, {"t": "t"}},
			want: files{"z": "z", "t": "t"},
		},
		"one removes a folder in which another one has more": {
			head: files{"c/0": "0", "c/1": "1"}, from: []files{{"c/0": "0"}}, to: []files{{"z": "z"}},
			want: files{"c/1": "1", "z": "z"},
		},
		"what another one has committed before": {
			head: files{"f": "theirs"}, from: []files{{}}, to: []files{{"f": "mine"}},
			differ: "/f was changed by rank 0, and before that by another rank",
		},
		"removed although another one has changed it": {
			head: files{"f": "theirs", "g": "g"}, from: []files{{"f": "f", "g": "g"}}, to: []files{{"g": "g"}},
			differ: "/f was changed by rank 0, and before that by another rank",
		},
		"changed although another one has removed it": {
			head: files{"g": "g"}, from: []files{{"f": "f", "g": "g"}}, to: []files{{"f": "new", "g": "g"}},
			differ: "/f was changed by rank 0, and before that by another rank",
		},
		"a file becomes a directory": {
			to:   []files{with(base, files{"top": "gone", "top/a": "1"}), base},
			want: with(base, files{"top": "gone", "top/a": "1"}),
		},
		"touched by one, changed by the other": {
			to:   []files{with(base, files{"top": "time:7 t"}), with(base, files{"top": "new"})},
			want: with(base, files{"top": "new"}),
		},
		"touched by two": {
			to:   []files{with(base, files{"top": "time:7 t"}), with(base, files{"top": "time:8 t"})},
			want: base,
		},
		"links and empty folders": {
			to:   []files{with(base, files{"l": "-> top", "e/": ""}), with(base, files{"l": "-> top", "f/": ""})},
			want: with(base, files{"l": "-> top", "e/": "", "f/": ""}),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChunks(t)
			if tc.head == nil {
				tc.head = base
			}
			var shards []Shard
			for i := range tc.to {
				from := base
				if tc.from != nil {
					from = tc.from[i]
				}
				shards = append(shards, Shard{Rank: i, From: c.tree(from), To: c.tree(tc.to[i])})
			}
			got, err := c.merger().Merge(t.Context(), c.tree(tc.head), shards)
			var differ *ConflictError
			switch {
			case tc.differ != "":
				if !errors.As(err, &differ) || differ.Error() != tc.differ {
					t.Fatalf("%v, want: %s", err, tc.differ)
				}
			case err != nil:
				t.Fatal(err)
			case !maps.Equal(c.list(got.Root), tc.want):
				t.Errorf("%v\nwant %v", c.list(got.Root), tc.want)
			}
		})
	}
}

// A merge reads what has changed, not everything.
func TestMergeReadsWhatHasChanged(t *testing.T) {
	t.Parallel()
	c := newChunks(t)
	base := files{}
	for i := range 100 {
		base[fmt.Sprintf("data/%d/f", i)] = fmt.Sprint(i)
	}
	from := c.tree(base)
	shards := []Shard{
		{0, from, c.tree(with(base, files{"ckpt/0": "a"}))}, {1, from, c.tree(with(base, files{"ckpt/1": "b"}))},
	}
	c.read = 0
	got, err := c.merger().Merge(t.Context(), from, shards)
	if err != nil {
		t.Fatal(err)
	}
	if c.read > 12 {
		t.Errorf("%d chunks were read", c.read)
	}
	if want := with(base, files{"ckpt/0": "a", "ckpt/1": "b"}); !maps.Equal(c.list(got.Root), want) {
		t.Errorf("%v", c.list(got.Root))
	}
}

// Trees of hostile hosts do not make a merge read without bound.
func TestMergeIsBounded(t *testing.T) {
	t.Parallel()
	c := newChunks(t)
	d := Entry{Kind: Dir, Mode: 0o755}
	w := c.merger().Writer
	if err := w.Dir(&d, []Entry{{Name: "f", Kind: File, Mode: 0o644}}); err != nil {
		t.Fatal(err)
	}
	for range 40 { // 2^40 directories, of 40 chunks
		a, b := d, d
		a.Name, b.Name = "a", "b"
		d = Entry{Kind: Dir, Mode: 0o755}
		if err := w.Dir(&d, []Entry{a, b}); err != nil {
			t.Fatal(err)
		}
	}
	root, err := w.Root(Root{Dir: d})
	if err != nil {
		t.Fatal(err)
	}
	m := c.merger()
	m.Limit = 1 << 20
	for ranks := range 2 {
		var shards []Shard
		for i := range ranks + 1 {
			shards = append(shards, Shard{Rank: i, To: root})
		}
		if _, err := m.Merge(t.Context(), Ref{}, shards); !errors.Is(err, ErrTooBig) {
			t.Errorf("%d ranks: %v", ranks+1, err)
		}
	}
}
