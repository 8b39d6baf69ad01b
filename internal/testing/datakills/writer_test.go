package datakills

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The writer's tree: hot files of a page, a big file of pages that are changed in place, and files that appear whole.
const (
	hotFiles = 40
	bigPages = 256
	pageSize = 4096
	keepGap  = 5      // generations between two kept files
	keepFor  = 50     // generations for which one is kept
	keptSize = 40_000 // bytes of it
)

func hotName(i int) string { return fmt.Sprintf("hot/%02d", i) }

// keptFile is the content of the file that a generation keeps.
func keptFile(g uint64) []byte {
	var seed [32]byte
	binary.LittleEndian.PutUint64(seed[:], g)
	b := make([]byte, keptSize)
	_, _ = rand.NewChaCha8(seed).Read(b)
	return b
}

// pageOf is a page of a generation.
func pageOf(g uint64) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint64(nil, g), pageSize/8)
}

// write changes a tree endlessly. In each generation it writes every hot file and then every page of the big one, each
// at once: at any moment the pages up to one have a generation, and the rest have the one before. Some generations also
// keep a file, under another name first, and remove an old one.
func write(dir string) error {
	for _, d := range []string{"hot", "kept"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	var pages []func([]byte) error
	for i := range hotFiles {
		f, err := os.Create(filepath.Join(dir, hotName(i)))
		if err != nil {
			return err
		}
		pages = append(pages, func(b []byte) error { _, err := f.WriteAt(b, 0); return err })
	}
	big, err := os.Create(filepath.Join(dir, "big"))
	if err != nil {
		return err
	}
	for i := range bigPages {
		pages = append(pages, func(b []byte) error { _, err := big.WriteAt(b, int64(i)*pageSize); return err })
	}
	for g := uint64(1); ; g++ {
		page := pageOf(g)
		for _, p := range pages {
			if err := p(page); err != nil {
				return err
			}
		}
		if g%keepGap == 0 {
			if err := keep(dir, g); err != nil {
				return err
			}
		}
		if g == 1 {
			fmt.Println("ready")
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func keep(dir string, g uint64) error {
	name := filepath.Join(dir, "kept", strconv.FormatUint(g, 10))
	if err := os.WriteFile(name+".tmp", keptFile(g), 0o600); err != nil {
		return err
	}
	if err := os.Rename(name+".tmp", name); err != nil {
		return err
	}
	if g > keepFor {
		return os.Remove(filepath.Join(dir, "kept", strconv.FormatUint(g-keepFor, 10)))
	}
	return nil
}

// generation returns the generation of a page, which must be of one.
func generation(page []byte) (uint64, error) {
	g := binary.LittleEndian.Uint64(page)
	if g == 0 || !bytes.Equal(page, pageOf(g)) {
		return 0, fmt.Errorf("a page is not of one generation: it begins with %d", g)
	}
	return g, nil
}

// torn returns what is wrong with a snapshot of the writer's tree. Of one that is not exact only each file by itself is
// judged.
func torn(files map[string][]byte, exact bool) error {
	var pages []uint64
	for i := range hotFiles + bigPages {
		var page []byte
		if i < hotFiles {
			page = files[hotName(i)]
		} else if at := (i - hotFiles) * pageSize; len(files["big"]) == bigPages*pageSize {
			page = files["big"][at : at+pageSize]
		}
		if len(page) != pageSize {
			return fmt.Errorf("page %d has %d bytes", i, len(page))
		}
		g, err := generation(page)
		if err != nil {
			return fmt.Errorf("page %d: %w", i, err)
		}
		pages = append(pages, g)
	}
	for name, b := range files {
		n, ok := strings.CutPrefix(name, "kept/")
		if !ok || strings.HasSuffix(n, ".tmp") {
			continue
		}
		g, err := strconv.ParseUint(n, 10, 64)
		if err != nil || sha256.Sum256(b) != sha256.Sum256(keptFile(g)) {
			return fmt.Errorf("%s has %d other bytes", name, len(b))
		}
	}
	if err := ordered(pages[hotFiles:]); err != nil {
		return fmt.Errorf("big: %w", err)
	}
	if !exact {
		return nil
	}
	if err := ordered(pages); err != nil {
		return err
	}
	for g := pages[0] - 1; g > 0 && g+keepFor > pages[0]+1; g-- {
		if name := fmt.Sprintf("kept/%d", g); g%keepGap == 0 && files[name] == nil {
			return fmt.Errorf("%s is missing in generation %d", name, pages[0])
		}
	}
	return nil
}

// ordered reports pages that the writer cannot have left like this: all are of one generation, or the first ones are of
// it and the rest of the one before.
func ordered(pages []uint64) error {
	for i, g := range pages {
		if g > pages[0] || g+1 < pages[0] || i > 0 && g > pages[i-1] {
			return fmt.Errorf("page %d is of generation %d, the first of %d", i, g, pages[0])
		}
	}
	return nil
}

// What torn finds: a snapshot of one moment is right, and each way to be wrong is seen.
func TestTornSnapshotsAreSeen(t *testing.T) {
	t.Parallel()
	whole := func() map[string][]byte {
		files := map[string][]byte{"kept/70.tmp": {1}}
		for i := range hotFiles {
			files[hotName(i)] = pageOf(71)
		}
		files["big"] = append(bytes.Repeat(pageOf(71), 100), bytes.Repeat(pageOf(70), bigPages-100)...)
		for g := uint64(25); g <= 70; g += keepGap {
			files[fmt.Sprintf("kept/%d", g)] = keptFile(g)
		}
		return files
	}
	if err := torn(whole(), true); err != nil {
		t.Errorf("a whole snapshot: %v", err)
	}
	for what, breaks := range map[string]func(map[string][]byte){
		"a file is missing":                func(f map[string][]byte) { delete(f, hotName(3)) },
		"a page is of two generations":     func(f map[string][]byte) { f[hotName(3)][100] ^= 1 },
		"a file is older than a later one": func(f map[string][]byte) { f[hotName(3)] = pageOf(70) },
		"a page of the big file is older":  func(f map[string][]byte) { copy(f["big"][pageSize:], pageOf(70)) },
		"the big file is cut off":          func(f map[string][]byte) { f["big"] = f["big"][:pageSize] },
		"a kept file is missing":           func(f map[string][]byte) { delete(f, "kept/60") },
		"a kept file is another":           func(f map[string][]byte) { f["kept/60"] = keptFile(65) },
	} {
		files := whole()
		if breaks(files); torn(files, true) == nil {
			t.Errorf("not seen: %s", what)
		}
	}
}
