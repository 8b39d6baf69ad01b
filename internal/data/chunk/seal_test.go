package chunk

import (
	"bytes"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func testKeys(t testing.TB) *Keys {
	t.Helper()
	k, err := NewKeys(bytes.Repeat([]byte{7}, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func sealed(t testing.TB, k *Keys, p []byte) (ID, []byte) {
	t.Helper()
	id := k.ID(p)
	blob, err := k.Seal(nil, id, p)
	if err != nil {
		t.Fatal(err)
	}
	return id, blob
}

// TestID_Golden holds ids as they are: other ids would store every volume's bytes a second time.
func TestID_Golden(t *testing.T) {
	t.Parallel()
	const want = "aa30b37852b523567471ca4655e9dd3f0cfa3ce4ca1fd31c5b46835eb9a6ff6c"
	if got := testKeys(t).ID([]byte("muster")).String(); got != want {
		t.Errorf("the id of the golden chunk is %s", got)
	}
}

func TestSeal_RoundTrip(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	for _, p := range [][]byte{{}, {1}, noise(1, MaxSize), make([]byte, MaxSize), bytes.Repeat([]byte("log "), 9999)} {
		id, blob := sealed(t, k, p)
		got, err := k.Open(id, blob)
		if err != nil || !bytes.Equal(got, p) {
			t.Errorf("%d bytes came back as %d: %v", len(p), len(got), err)
		}
		if len(blob) > len(p)+Overhead {
			t.Errorf("%d bytes became %d", len(p), len(blob))
		}
		if got, err = k.OpenInPlace(id, bytes.Clone(blob)); err != nil || !bytes.Equal(got, p) {
			t.Errorf("in place, %d bytes came back as %d: %v", len(p), len(got), err)
		}
		other := bytes.Clone(blob)
		other[len(other)-1] ^= 1
		if got, err = k.OpenInPlace(id, other); !errors.Is(err, ErrCorrupt) || got != nil {
			t.Errorf("in place, %d changed bytes came back as %d: %v", len(p), len(got), err)
		}
		if _, err = k.OpenInPlace(id, blob[:Overhead-1]); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a blob that is cut off: %v", err)
		}
	}
}

func TestSeal_NonceIsRandom(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	_, a := sealed(t, k, []byte("x"))
	_, b := sealed(t, k, []byte("x"))
	if bytes.Equal(a[1:13], b[1:13]) {
		t.Error("two blobs have one nonce")
	}
}

func TestOpen_Changed(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	id, blob := sealed(t, k, bytes.Repeat([]byte("log "), 100))
	for i := range blob {
		bad := bytes.Clone(blob)
		bad[i] ^= 1
		if _, err := k.Open(id, bad); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for n := range blob {
		if _, err := k.Open(id, blob[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
	}
}

// TestOpen_AnotherChunk: a store that answers with the blob of another chunk is found out, and so is a writer with the
// key who seals other bytes under an id.
func TestOpen_AnotherChunk(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	idA, a := sealed(t, k, []byte("a"))
	_, b := sealed(t, k, []byte("b"))
	forged, err := k.Seal(nil, idA, []byte("b"))
	if err != nil {
		t.Fatal(err)
	}
	for name, blob := range map[string][]byte{"swapped": b, "forged": forged} {
		if _, err := k.Open(idA, blob); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, err := NewKeys(bytes.Repeat([]byte{8}, KeySize))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(idA, a); !errors.Is(err, ErrCorrupt) {
		t.Errorf("another domain: %v", err)
	}
}

// TestOpen_Bomb: a blob that unpacks to more than a chunk is refused before it is unpacked.
func TestOpen_Bomb(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	bomb := make([]byte, 64<<20)
	id := k.ID(bomb)
	aead, err := gcm(k.chunks, id[:])
	if err != nil {
		t.Fatal(err)
	}
	blob := sealWith(aead, nil, flagZstd, enc.EncodeAll(bomb, nil), id[:])
	if _, err := k.Open(id, blob); !errors.Is(err, ErrCorrupt) {
		t.Fatal(err)
	}
}

func packOf(t testing.TB, k *Keys, chunks ...[]byte) ([]byte, []Entry) {
	t.Helper()
	var p Packer
	var want []Entry
	for _, c := range chunks {
		id, blob := sealed(t, k, c)
		e, err := p.Add(id, blob)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, e)
	}
	pack, err := p.Finish(k)
	if err != nil {
		t.Fatal(err)
	}
	return pack, want
}

func TestPack_RoundTrip(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	chunks := [][]byte{noise(1, 1000), noise(2, MaxSize), []byte("x")}
	pack, want := packOf(t, k, chunks...)
	got, err := k.Table(pack)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("%v, %v", got, err)
	}
	for i, e := range got {
		c, err := k.Open(e.ID, pack[e.Offset:e.Offset+e.Length])
		if err != nil || !bytes.Equal(c, chunks[i]) {
			t.Errorf("chunk %d: %v", i, err)
		}
	}
}

// TestPack_Full fills packs with large and with tiny blobs: none is longer than PackSize, and all can be read.
func TestPack_Full(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	for _, size := range []int{Overhead, 1000, MaxSize + Overhead} {
		var p Packer
		blob := make([]byte, size)
		for p.Fits(size) {
			if _, err := p.Add(ID{}, blob); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.Add(ID{}, blob); err == nil {
			t.Error("a blob that does not fit was added")
		}
		n := p.Len()
		pack, err := p.Finish(k)
		if err != nil || len(pack) > PackSize {
			t.Fatalf("%d bytes, %v", len(pack), err)
		}
		if table, err := k.Table(pack); err != nil || len(table) != n {
			t.Errorf("%d of %d entries: %v", len(table), n, err)
		}
	}
}

func TestTable_CutOff(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	pack, _ := packOf(t, k, []byte("a"), []byte("b"))
	for n := range pack {
		if _, err := k.Table(pack[:n]); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut off after %d bytes: %v", n, err)
		}
	}
	if _, err := k.Table(slices.Concat(pack[:20], pack[21:])); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte is missing: %v", err)
	}
}

// FuzzTable checks that whatever a store answers is read or refused, and that a table that is read lies in its pack.
// The second argument is a table that someone with the key sealed.
func FuzzTable(f *testing.F) {
	k := testKeys(f)
	pack, _ := packOf(f, k, []byte("a"), []byte("b"))
	f.Add(pack, []byte{})
	f.Add(pack[:8], make([]byte, entrySize))
	f.Fuzz(func(t *testing.T, p, table []byte) {
		aead, err := gcm(k.tables, nil)
		if err != nil {
			t.Fatal(err)
		}
		own := sealWith(aead, slices.Concat([]byte(packMagic), p), flagRaw, table, []byte(packMagic))
		n := len(own) - len(packMagic) - len(p)
		own = append(own, byte(n), byte(n>>8), byte(n>>16), 0)
		own = append(own, packMagic...)
		for _, pack := range [][]byte{p, own} {
			var entries []Entry
			within(t, 8*len(pack)+64<<10, func() { entries, err = k.Table(pack) })
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			for _, e := range entries {
				_ = pack[e.Offset : e.Offset+e.Length]
			}
		}
	})
}

// within fails if f allocates more than a number of bytes.
func within(t *testing.T, most int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > uint64(most) {
		t.Fatalf("%d bytes were allocated, at most %d may be", got, most)
	}
}

// FuzzOpen checks that a blob is opened only if it was sealed here, and takes no more memory than a chunk has, whatever
// it claims. The second argument is a compressed chunk that someone with the key sealed.
func FuzzOpen(f *testing.F) {
	k := testKeys(f)
	id, blob := sealed(f, k, []byte("a"))
	packed, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	bomb := packed.EncodeAll(make([]byte, 64<<20), nil)
	f.Add(blob, bomb)
	_ = decoder()
	f.Fuzz(func(t *testing.T, p, body []byte) {
		aead, err := gcm(k.chunks, id[:])
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range [][]byte{p, sealWith(aead, nil, flagZstd, body, id[:])} {
			var got []byte
			within(t, 4*len(p)+8*MaxSize, func() { got, err = k.Open(id, p) })
			if err == nil && !bytes.Equal(got, []byte("a")) || err != nil && !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%q, %v", got, err)
			}
		}
	})
}

// TestTable_Misplaced: a table whose blobs do not lie one after the other is refused, even if it was sealed with the
// key: its readers slice the pack by it.
func TestTable_Misplaced(t *testing.T) {
	t.Parallel()
	k := testKeys(t)
	for name, move := range map[string]func(*Packer){
		"overlapping":     func(p *Packer) { p.entries[1].Offset-- },
		"outside":         func(p *Packer) { p.entries[1].Offset = 1 << 30 },
		"too long":        func(p *Packer) { p.entries[1].Length++ },
		"wrapping around": func(p *Packer) { p.entries[1].Length = 1<<32 - 1 },
	} {
		var p Packer
		for _, c := range []string{"a", "b"} {
			id, blob := sealed(t, k, []byte(c))
			if _, err := p.Add(id, blob); err != nil {
				t.Fatal(err)
			}
		}
		move(&p)
		pack, err := p.Finish(k)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := k.Table(pack); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
