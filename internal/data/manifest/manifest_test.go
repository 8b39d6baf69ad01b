package manifest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/data/chunk"
)

func ref(n int, size uint32) Ref {
	r := Ref{Pack: int64(1 + n/7), Offset: uint32(8 + n), Length: size + 29, Size: size}
	r.ID[0], r.ID[31] = byte(n), byte(n>>8)
	return r
}

func sample() []Entry {
	return []Entry{
		{Name: "z.bin", Kind: File, Mode: 0o644, UID: 1000, GID: 1000, MTime: 1764100000123456789, Size: 300,
			Body: Content{Refs: []Ref{ref(1, 100), ref(2, 200)}}, XAttrs: []XAttr{{"user.a", "1"}, {"user.b", "\x00"}}},
		{Name: "sparse", Kind: File, Mode: 0o600, MTime: -1, Size: 1 << 40, Link: 7,
			Holes: []Extent{{0, 4096}, {8192, 1<<40 - 8192}}, Body: Content{Refs: []Ref{ref(3, 4096)}}},
		{Name: "empty", Kind: File, Mode: 0o400},
		{Name: "dir", Kind: Dir, Mode: 0o1777, Size: 9, Body: Content{Refs: []Ref{ref(4, 9)}}},
		{Name: "link", Kind: Symlink, Mode: 0o777, Target: "../../etc/passwd"},
		{Name: "bad\xffutf8", Kind: File, Mode: 0o644, Size: 2 << 40, Body: Content{Lists: 2, Refs: []Ref{ref(5, 1<<20)}}},
	}
}

// The encodings never change: every snapshot of every volume would have another one.
func TestGolden(t *testing.T) {
	t.Parallel()
	dir, err := EncodeDir(sample())
	if err != nil {
		t.Fatal(err)
	}
	root, err := EncodeRoot(Root{Dir: Entry{Kind: Dir, Mode: 0o755, Size: 9, Body: Content{Refs: []Ref{ref(4, 9)}}},
		Files: 3, Dirs: 1, LogicalBytes: 4396, LeftOut: 2})
	if err != nil {
		t.Fatal(err)
	}
	refs, err := EncodeRefs([]Ref{ref(1, 100), ref(300, 1<<20)})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		got  []byte
		want string
	}{
		"dir":  {dir, "a8175b130eb12e07bc73b7d42677f43b84dcfc209dd0812d737d11248d52ef62"},
		"root": {root, "11f3dd60fce94aebfba0cc8d6025e7aab697904dbaca6051186c5a32a6c22bc2"},
		"refs": {refs, "1eae77abf360187cfb4e6793d6a34734153c45c8c22b57066cf768c985d5a6ae"},
		"set": {NewPackSet(1, 2, 3, 7, 9, 1000000).Encode(),
			"7221d455618451582bb6da3635a799e114733f9cb4dfff81c5ebeb69118bf8ed"},
	} {
		sum := sha256.Sum256(c.got)
		if got := hex.EncodeToString(sum[:]); got != c.want {
			t.Errorf("%s: hash %s, want %s", name, got, c.want)
		}
	}
}

// decodeDir decodes a directory that comes whole.
func decodeDir(b []byte) (entries []Entry, err error) {
	d := dirDecoder{size: int64(len(b))}
	err = d.add(b, func(e Entry) bool {
		entries = append(entries, e)
		return true
	})
	if err != nil {
		return nil, err
	}
	return entries, nil
}

func TestDirComesBack(t *testing.T) {
	t.Parallel()
	b, err := EncodeDir(sample())
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeDir(b)
	if err != nil {
		t.Fatal(err)
	}
	want := sample()
	if _, err := EncodeDir(want); err != nil { // sorts
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	for n := range b {
		if _, err := decodeDir(b[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("the first %d bytes of %d decode: %v", n, len(b), err)
		}
	}
	if _, err := decodeDir(append(b, 0)); !errors.Is(err, ErrCorrupt) {
		t.Fatal("a byte too many decodes")
	}
}

// A hostile host may write anything into a manifest. What would leave the volume, or would be read in two ways, is
// refused by encoders and decoders alike.
func TestHostileEntries(t *testing.T) {
	t.Parallel()
	file := Entry{Name: "a", Kind: File, Mode: 0o644, Size: 100, Body: Content{Refs: []Ref{ref(1, 100)}}}
	for name, change := range map[string]func(*Entry){
		"no name":                func(e *Entry) { e.Name = "" },
		"itself":                 func(e *Entry) { e.Name = "." },
		"parent":                 func(e *Entry) { e.Name = ".." },
		"slash":                  func(e *Entry) { e.Name = "a/b" },
		"absolute":               func(e *Entry) { e.Name = "/etc" },
		"NUL":                    func(e *Entry) { e.Name = "a\x00b" },
		"long name":              func(e *Entry) { e.Name = strings.Repeat("x", MaxName+1) },
		"setuid":                 func(e *Entry) { e.Mode = 0o4755 },
		"setgid":                 func(e *Entry) { e.Mode = 0o2755 },
		"device bits":            func(e *Entry) { e.Mode = 0o60644 },
		"kind":                   func(e *Entry) { e.Kind = 'c' },
		"trusted xattr":          func(e *Entry) { e.XAttrs = []XAttr{{"security.capability", "x"}} },
		"xattr order":            func(e *Entry) { e.XAttrs = []XAttr{{"user.b", ""}, {"user.a", ""}} },
		"xattr twice":            func(e *Entry) { e.XAttrs = []XAttr{{"user.b", ""}, {"user.b", ""}} },
		"xattr size":             func(e *Entry) { e.XAttrs = []XAttr{{"user.b", strings.Repeat("x", MaxXAttrs)}} },
		"smaller than chunks":    func(e *Entry) { e.Size = 99 },
		"bigger than chunks":     func(e *Entry) { e.Size = 101 },
		"negative":               func(e *Entry) { e.Size = -1 },
		"hole outside":           func(e *Entry) { e.Holes = []Extent{{90, 11}} },
		"hole overflow":          func(e *Entry) { e.Holes = []Extent{{50, 1<<63 - 1}} },
		"empty hole":             func(e *Entry) { e.Holes = []Extent{{50, 0}} },
		"holes touch":            func(e *Entry) { e.Size, e.Holes = 102, []Extent{{50, 1}, {51, 1}} },
		"pack 0":                 func(e *Entry) { e.Body.Refs[0].Pack = 0 },
		"outside its pack":       func(e *Entry) { e.Body.Refs[0].Offset = chunk.PackSize },
		"chunk too big":          func(e *Entry) { e.Body.Refs[0].Size, e.Size = chunk.MaxSize+1, chunk.MaxSize+1 },
		"levels":                 func(e *Entry) { e.Body.Lists = MaxLists + 1 },
		"levels without lists":   func(e *Entry) { e.Body = Content{Lists: 1}; e.Size = 5 },
		"target of a file":       func(e *Entry) { e.Target = "x" },
		"symlink without target": func(e *Entry) { *e = Entry{Name: "a", Kind: Symlink} },
		"symlink with content":   func(e *Entry) { e.Kind, e.Target = Symlink, "x" },
		"symlink to NUL":         func(e *Entry) { *e = Entry{Name: "a", Kind: Symlink, Target: "a\x00"} },
		"huge directory":         func(e *Entry) { e.Kind, e.Size = Dir, MaxDirBytes+1 },
		"directory with link":    func(e *Entry) { e.Kind, e.Link = Dir, 1 },
	} {
		e := file
		e.Body.Refs = []Ref{ref(1, 100)}
		change(&e)
		if _, err := EncodeDir([]Entry{e}); err == nil {
			t.Errorf("%s: encoded", name)
		}
		if e.Kind == Symlink && len(e.Body.Refs) > 0 || e.Kind != File && e.Link != 0 || e.Kind != Symlink && e.Target != "" {
			continue // the encoding has no place for it
		}
		// What a hostile encoder would write.
		b := appendEntry(append([]byte(dirMagic), 1), &e)
		if _, err := decodeDir(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: decoded: %v", name, err)
		}
	}
	if _, err := decodeDir(appendEntry(append([]byte(dirMagic), 1), &file)); err != nil {
		t.Fatalf("the harmless entry: %v", err)
	}
	if _, err := EncodeDir([]Entry{file, file}); err == nil {
		t.Error("two entries of one name are encoded")
	}
	b := appendEntry(appendEntry(append([]byte(dirMagic), 2), &file), &file)
	if _, err := decodeDir(b); !errors.Is(err, ErrCorrupt) {
		t.Errorf("two entries of one name are decoded: %v", err)
	}
}

// memory keeps chunks in memory.
type memory map[chunk.ID][]byte

func (m memory) put(b []byte) (Ref, error) {
	r := Ref{ID: sha256.Sum256(b), Pack: 1, Offset: 8, Length: uint32(len(b)) + chunk.Overhead, Size: uint32(len(b))}
	m[r.ID] = bytes.Clone(b)
	return r, nil
}

func (m memory) get(_ context.Context, r Ref) ([]byte, error) {
	if b, ok := m[r.ID]; ok {
		return b, nil
	}
	return nil, chunk.ErrCorrupt
}

func TestTree(t *testing.T) {
	t.Parallel()
	m := memory{}
	w, r := Writer{m.put}, Reader{Chunk: m.get}
	one, _ := m.put([]byte("ab"))
	block, _ := m.put(bytes.Repeat([]byte("ab"), 500))
	refs := make([]Ref, MaxListRefs+MaxRefs)
	for i := range refs {
		refs[i] = block
	}
	body, err := w.Content(refs)
	if err != nil || body.Lists != 1 {
		t.Fatalf("lists %d: %v", body.Lists, err)
	}
	big := Entry{Name: "big", Kind: File, Mode: 0o644, Size: int64(1000 * len(refs)), Body: body}
	sparse := Entry{Name: "sparse", Kind: File, Mode: 0o644, Size: 9, Body: Content{Refs: []Ref{one, one}},
		Holes: []Extent{{0, 1}, {2, 3}, {8, 1}}}
	sub := Entry{Name: "sub", Kind: Dir, Mode: 0o755}
	if err := w.Dir(&sub, []Entry{big, sparse}); err != nil {
		t.Fatal(err)
	}
	var many []Entry
	for i := range 20_000 {
		name := "f" + hex.EncodeToString([]byte{byte(i >> 8), byte(i)})
		many = append(many, Entry{Name: name, Kind: File, Mode: 0o644, Size: 2, Body: Content{Refs: []Ref{one}}})
	}
	top := Entry{Kind: Dir, Mode: 0o755}
	if err := w.Dir(&top, append(many, sub)); err != nil {
		t.Fatal(err)
	}
	ref, err := w.Root(Root{Dir: top, Files: 20_002, Dirs: 1})
	if err != nil {
		t.Fatal(err)
	}

	ctx := t.Context()
	root, err := r.Root(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	e, err := r.Find(ctx, root, "/sub/sparse")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := r.Write(ctx, &out, e); err != nil || out.String() != "\x00a\x00\x00\x00bab\x00" {
		t.Fatalf("the file with holes is %q: %v", out.String(), err)
	}
	if e, err = r.Find(ctx, root, "sub/big"); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if err := r.Write(ctx, &out, e); err != nil || out.Len() != 1000*len(refs) ||
		strings.Trim(out.String(), "ab") != "" {
		t.Fatalf("%d bytes of the big file: %v", out.Len(), err)
	}
	if entries, err := r.Dir(ctx, root.Dir); err != nil || len(entries) != 20_001 {
		t.Fatalf("%d entries: %v", len(entries), err)
	}
	for _, p := range []string{"x", "sub/x", "sub/big/x", "../sub"} {
		if _, err := r.Find(ctx, root, p); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", p, err)
		}
	}
	delete(m, block.ID)
	if err := r.Write(ctx, &out, e); !errors.Is(err, chunk.ErrCorrupt) {
		t.Fatalf("a file without its chunk: %v", err)
	}
}

// A directory whose content is longer than it states is not read to its end.
func TestDirLongerThanStated(t *testing.T) {
	t.Parallel()
	m := memory{}
	reads := 0
	r := Reader{Chunk: func(ctx context.Context, ref Ref) ([]byte, error) { reads++; return m.get(ctx, ref) }}
	block, _ := m.put(make([]byte, chunk.MaxSize))
	refs := make([]Ref, MaxListRefs)
	for i := range refs {
		refs[i] = block
	}
	list, err := EncodeRefs(refs)
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := m.put(list)
	e := Entry{Kind: Dir, Size: 9, Body: Content{Lists: 1, Refs: []Ref{ref}}}
	if _, err := r.Dir(t.Context(), e); !errors.Is(err, ErrCorrupt) || reads > 2 {
		t.Fatalf("%v after %d reads", err, reads)
	}
}

// blow returns a directory whose few stored bytes claim to be more: it is made of one list of references, again and
// again.
func blow(t *testing.T, m memory, b []byte, perList, lists int) Entry {
	t.Helper()
	one, _ := m.put(b)
	list, err := EncodeRefs(slices.Repeat([]Ref{one}, perList))
	if err != nil {
		t.Fatal(err)
	}
	at, _ := m.put(list)
	return Entry{Kind: Dir, Name: "d", Size: int64(len(b) * perList * lists),
		Body: Content{Lists: 1, Refs: slices.Repeat([]Ref{at}, lists)}}
}

// What a few stored bytes claim to be costs a few reads: chunks and lists that are smaller than a Writer makes them,
// and sizes that their content does not have.
func TestReader_RefusesWhatIsMuchAndReadsLittle(t *testing.T) {
	t.Parallel()
	m, reads := memory{}, 0
	r := Reader{Chunk: func(ctx context.Context, ref Ref) ([]byte, error) { reads++; return m.get(ctx, ref) }}
	file := func(e Entry) Entry {
		e.Kind, e.Size = File, 1<<60
		return e
	}
	block := bytes.Repeat([]byte("muster "), 1<<20/7)
	for name, c := range map[string]struct {
		e    Entry
		most int
	}{
		"a directory of bytes":    {blow(t, m, []byte("M"), MaxListRefs, 1024), 600},
		"a file of bytes":         {file(blow(t, m, []byte("M"), MaxListRefs, 1024)), 5},
		"lists that are not full": {file(blow(t, m, block, MaxListRefs-1, MaxRefs)), 1},
		"a directory of zeros":    {blow(t, m, make([]byte, 1<<20), 64, 1), 3},
	} {
		reads = 0
		var err error
		if c.e.Kind == Dir {
			_, err = r.Dir(t.Context(), c.e)
		} else {
			for _, err = range r.Refs(t.Context(), c.e) { // ends with the first error
			}
		}
		if !errors.Is(err, ErrCorrupt) || reads > c.most {
			t.Errorf("%s: %v after %d reads", name, err, reads)
		}
	}
}

func TestPackSet(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		s, oracle := new(PackSet), map[int64]bool{}
		top := 1 + rnd.Int64N(300)
		for range rnd.IntN(200) {
			n := 1 + rnd.Int64N(top)
			s.Add(n)
			oracle[n] = true
		}
		back, err := DecodePackSet(s.Encode())
		if err != nil || !slices.Equal(back.Runs(), s.Runs()) {
			t.Fatalf("%v comes back as %v: %v", s.Runs(), back, err)
		}
		for n := int64(0); n <= top+1; n++ {
			if s.Has(n) != oracle[n] {
				t.Fatalf("%v has %d: %v", s.Runs(), n, s.Has(n))
			}
		}
		if s.Len() != int64(len(oracle)) {
			t.Fatalf("%d numbers, want %d", s.Len(), len(oracle))
		}
		o := NewPackSet(5, 6, 100)
		o.AddAll(s)
		for n := int64(1); n <= top; n++ {
			if o.Has(n) != (oracle[n] || n == 5 || n == 6 || n == 100) {
				t.Fatalf("the union has %d: %v", n, o.Has(n))
			}
		}
	}
}

func FuzzDecode(f *testing.F) {
	dir, err := EncodeDir(sample())
	if err != nil {
		f.Fatal(err)
	}
	root, err := EncodeRoot(Root{Dir: Entry{Kind: Dir, Mode: 0o755}, Files: 1})
	if err != nil {
		f.Fatal(err)
	}
	refs, err := EncodeRefs([]Ref{ref(1, 100)})
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{dir, root, refs, NewPackSet(1, 2, 9).Encode()} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var entries []Entry
		var top Root
		var list []Ref
		var set *PackSet
		var derr, rerr, lerr, serr error
		within(t, len(b), func() {
			entries, derr = decodeDir(b)
			top, rerr = DecodeRoot(b)
			list, lerr = DecodeRefs(b)
			set, serr = DecodePackSet(b)
		})
		if derr == nil {
			same(t, b, func() ([]byte, error) { return EncodeDir(entries) })
		}
		if rerr == nil {
			same(t, b, func() ([]byte, error) { return EncodeRoot(top) })
		}
		if lerr == nil {
			same(t, b, func() ([]byte, error) { return EncodeRefs(list) })
		}
		if serr == nil {
			same(t, b, func() ([]byte, error) { return set.Encode(), nil })
		}
	})
}

// within fails if f allocates more than a small multiple of the bytes that it reads: an entry of 9 bytes takes about
// 20 times as much, and a slice that grows up to three times its end.
func within(t *testing.T, read int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(100*read+64<<10); got > most {
		t.Fatalf("%d bytes were allocated for %d", got, read)
	}
}

// A directory that comes in parts is the one that comes whole, and takes no more memory than a few parts, whatever it
// claims.
func FuzzEntries(f *testing.F) {
	dir, err := EncodeDir(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(dir, uint32(10), int64(len(dir)))
	claim := append([]byte(dirMagic), 0x80, 0x80, 0xc0, 0x03) // 7,340,032 entries
	f.Add(append(claim, make([]byte, 4096)...), uint32(100), int64(MaxDirBytes))
	f.Fuzz(func(t *testing.T, b []byte, part uint32, size int64) {
		part = part%4096 + 1
		if len(b) > MaxRefs*int(part) {
			return
		}
		var refs []Ref
		for at := 0; at < len(b); at += int(part) {
			n := min(part, uint32(len(b)-at))
			refs = append(refs, Ref{Pack: int64(at) + 1, Length: n + chunk.Overhead, Size: n})
		}
		r := Reader{Chunk: func(_ context.Context, r Ref) ([]byte, error) {
			return b[r.Pack-1 : r.Pack-1+int64(r.Size)], nil
		}}
		var got []Entry
		var err error
		within(t, len(b), func() {
			got, err = r.Dir(t.Context(), Entry{Kind: Dir, Size: size, Body: Content{Refs: refs}})
		})
		want, werr := decodeDir(b)
		if err == nil && (werr != nil || size != int64(len(b)) || !cmp.Equal(got, want)) {
			t.Fatalf("in parts: %v; whole: %v, %v", got, want, werr)
		}
		small := int64(len(refs)) > chunk.MaxChunks(0)
		if werr == nil && size == int64(len(b)) && err != nil && !small {
			t.Fatalf("in parts: %v; whole: %v", err, want)
		}
	})
}

// same fails unless encoding gives b again: what decodes has one encoding.
func same(t *testing.T, b []byte, encode func() ([]byte, error)) {
	t.Helper()
	got, err := encode()
	if err != nil || !bytes.Equal(got, b) {
		t.Fatalf("decoded from %x, encoded as %x: %v", b, got, err)
	}
}
