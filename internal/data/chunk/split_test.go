package chunk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/iotest"
)

func noise(seed uint64, n int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	p := make([]byte, n)
	_, _ = rand.NewChaCha8(key).Read(p)
	return p
}

func lengths(t testing.TB, r io.Reader) (sizes []int, all []byte) {
	t.Helper()
	s := NewSplitter(r)
	for {
		c, err := s.Next()
		if errors.Is(err, io.EOF) {
			return sizes, all
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(c) == 0 || len(c) > MaxSize {
			t.Fatalf("a chunk of %d bytes", len(c))
		}
		sizes, all = append(sizes, len(c)), append(all, c...)
	}
}

// torchSave returns a file as torch.save writes it: an uncompressed zip whose names begin with the file's stem, sizes
// in descriptors behind the data, and data aligned to 64 bytes.
func torchSave(stem string, tensors [][]byte) []byte {
	var p []byte
	for i, tensor := range tensors {
		name := fmt.Sprintf("%s/data/%d", stem, i)
		pad := (64 - (len(p)+zipHeader+len(name)+4)%64) % 64
		h := make([]byte, zipHeader)
		copy(h, "PK\x03\x04\x00\x00\x08\x08")
		binary.LittleEndian.PutUint16(h[26:], uint16(len(name)))
		binary.LittleEndian.PutUint16(h[28:], uint16(4+pad))
		p = append(append(p, h...), name...)
		p = append(append(p, 'F', 'B', byte(pad), 0), bytes.Repeat([]byte{'Z'}, pad)...)
		p = append(append(p, tensor...), "PK\x07\x08"...)
		sum := sha256.Sum256(tensor)
		p = binary.LittleEndian.AppendUint64(append(p, sum[:4]...), uint64(len(tensor)))
	}
	return p
}

// TestSplit_Golden holds the cuts where they are: other cuts would send every volume's bytes again.
func TestSplit_Golden(t *testing.T) {
	t.Parallel()
	var tensors [][]byte
	for i := range 6 {
		tensors = append(tensors, noise(uint64(10+i), 100_000*(i+1)))
	}
	for name, c := range map[string]struct {
		data  []byte
		first []int
		all   string
	}{
		"noise":  {noise(1, 8<<20), []int{245648, 187583, 213552, 108858}, "e27b056cf6878988"},
		"zeroes": {make([]byte, 3<<20), []int{1 << 20, 1 << 20, 1 << 20}, "20d5c7dcc2b86f84"},
		"zip":    {torchSave("step_1000", tensors), []int{64, 100016, 80, 200016, 112, 163719}, "9d45e5f6bf8b3d21"},
	} {
		sizes, _ := lengths(t, bytes.NewReader(c.data))
		sum := sha256.Sum256(fmt.Append(nil, sizes))
		if got := hex.EncodeToString(sum[:8]); got != c.all || !slices.Equal(sizes[:len(c.first)], c.first) {
			t.Errorf("%s: cuts moved: %d chunks, %v, %s", name, len(sizes), sizes[:min(6, len(sizes))], got)
		}
	}
}

// TestSplit_AnyRead checks that chunks do not depend on how the bytes arrive, and that they lose none.
func TestSplit_AnyRead(t *testing.T) {
	t.Parallel()
	data := slices.Concat(noise(2, 3<<20), torchSave("a", [][]byte{noise(3, 90), noise(4, 200_000)}), noise(5, 1<<20))
	want, all := lengths(t, bytes.NewReader(data))
	if !bytes.Equal(all, data) {
		t.Fatal("the chunks are not the file")
	}
	for name, r := range map[string]io.Reader{
		"half": iotest.HalfReader(bytes.NewReader(data)), "early EOF": iotest.DataErrReader(bytes.NewReader(data)),
	} {
		if got, _ := lengths(t, r); !slices.Equal(got, want) {
			t.Errorf("%s: other chunks", name)
		}
	}
}

func TestSplit_ReadError(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk")
	s := NewSplitter(io.MultiReader(bytes.NewReader(noise(1, 100)), iotest.ErrReader(broken)))
	if c, err := s.Next(); !errors.Is(err, broken) {
		t.Fatalf("%d bytes, %v: a file that could not be read was split", len(c), err)
	}
}

// TestSplit_Hostile checks that a file made of zip headers does not become millions of chunks.
func TestSplit_Hostile(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("PK\x03\x04"), 1<<20)
	if sizes, _ := lengths(t, bytes.NewReader(data)); len(sizes) > freeCuts+len(data)/bytesPerCut+len(data)/MinSize {
		t.Errorf("%d chunks of %d bytes", len(sizes), len(data))
	}
}

// moved returns what part of b's bytes lies in chunks that a has not.
func moved(t *testing.T, a, b []byte) float64 {
	t.Helper()
	k := testKeys(t)
	known := map[ID]bool{}
	each := func(p []byte, f func(ID, int)) {
		s := NewSplitter(bytes.NewReader(p))
		for c, err := s.Next(); err == nil; c, err = s.Next() {
			f(k.ID(c), len(c))
		}
	}
	each(a, func(id ID, _ int) { known[id] = true })
	sum := 0
	each(b, func(id ID, n int) {
		if !known[id] {
			sum += n
		}
		known[id] = true
	})
	return float64(sum) / float64(len(b))
}

// TestSplit_SecondCheckpoint: at most 7 % of the bytes are new where 5 % were changed, in the three cases that the
// documents promise.
func TestSplit_SecondCheckpoint(t *testing.T) {
	t.Parallel()
	const size = 160 << 20
	base := noise(7, size)
	check := func(name string, a, b []byte) {
		if part := moved(t, a, b); part > 0.07 {
			t.Errorf("%s: %.1f %% of the bytes are new", name, 100*part)
		} else {
			t.Logf("%s: %.2f %%", name, 100*part)
		}
	}
	for _, count := range []int{150, 600, 2400} {
		var before, after [][]byte
		for i := range count {
			tensor := base[i*(size/count) : (i+1)*(size/count)]
			before, after = append(before, tensor), append(after, tensor)
			if i%20 == 7 {
				after[i] = noise(uint64(100+i), len(tensor))
			}
		}
		check(fmt.Sprint(count, " tensors, a new name"), torchSave("step_1000", before), torchSave("step_1100", after))
	}
	changed := bytes.Clone(base)
	copy(changed[40<<20:], noise(8, 8<<20)) // 5 %
	check("in place", base, changed)
	check("137 bytes in front", base, append(noise(9, 137), base...))
}

// FuzzSplit checks that any bytes come back whole, in chunks of legal size.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("PK\x03\x04"), uint16(3))
	f.Add(bytes.Repeat([]byte("PK\x03\x04"), 4<<10), uint16(63))
	f.Add(torchSave("x", [][]byte{{1}, {2, 3}}), uint16(1000))
	f.Fuzz(func(t *testing.T, p []byte, times uint16) {
		data := bytes.Repeat(p, 1+int(times)%64)
		chunks, all := lengths(t, bytes.NewReader(data))
		if !bytes.Equal(all, data) {
			t.Fatal("the chunks are not the file")
		}
		if most := MaxChunks(int64(len(data))); int64(len(chunks)) > most {
			t.Fatalf("%d chunks of %d bytes, at most %d", len(chunks), len(data), most)
		}
	})
}
