package manifest

import (
	"fmt"
	"strings"

	"github.com/musterhq/muster/internal/data/chunk"
)

// modeBits are the bits of a mode that pass.
const modeBits = 0o1777

// ok reports whether a chunk can be where r says.
func (r Ref) ok() bool {
	return r.Pack >= 1 && r.Size >= 1 && r.Size <= chunk.MaxSize && r.Length > chunk.Overhead &&
		r.Length <= chunk.MaxSize+chunk.Overhead && int64(r.Offset)+int64(r.Length) <= chunk.PackSize
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > MaxName || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("the name %.300q cannot be one of a file", name)
	}
	return nil
}

// check checks everything about an entry but its name. Encoders and decoders use it, so that they agree.
func check(e *Entry) error {
	if e.Mode&^modeBits != 0 {
		return fmt.Errorf("mode %o has other bits than permissions", e.Mode)
	}
	if err := checkXAttrs(e.XAttrs); err != nil {
		return err
	}
	if e.Kind != File && (e.Link != 0 || len(e.Holes) > 0) {
		return fmt.Errorf("only files have links and holes")
	}
	switch e.Kind {
	case Symlink:
		if e.Target == "" || len(e.Target) > MaxTarget || strings.Contains(e.Target, "\x00") {
			return fmt.Errorf("the target of a symbolic link is empty, too long or has a NUL")
		}
		if e.Size != 0 || len(e.Body.Refs) > 0 || e.Body.Lists != 0 {
			return fmt.Errorf("a symbolic link has no content")
		}
		return nil
	case File, Dir:
		if e.Target != "" {
			return fmt.Errorf("only symbolic links have a target")
		}
		if e.Kind == Dir && e.Size > MaxDirBytes {
			return fmt.Errorf("a directory of %d bytes is too big", e.Size)
		}
		return checkContent(e)
	}
	return fmt.Errorf("unknown kind %q", byte(e.Kind))
}

func checkXAttrs(xs []XAttr) error {
	size := 0
	for i, x := range xs {
		size += len(x.Name) + len(x.Value)
		switch {
		case !strings.HasPrefix(x.Name, "user.") || len(x.Name) == len("user."):
			return fmt.Errorf("the extended attribute %.300q is not user.…", x.Name)
		case len(x.Name) > MaxName, strings.Contains(x.Name, "\x00"):
			return fmt.Errorf("the name of an extended attribute is too long or has a NUL")
		case i > 0 && xs[i-1].Name >= x.Name:
			return fmt.Errorf("extended attributes are not sorted")
		}
	}
	if size > MaxXAttrs {
		return fmt.Errorf("extended attributes of %d bytes", size)
	}
	return nil
}

// checkContent checks that holes and chunks make up a file of the entry's size.
func checkContent(e *Entry) error {
	if len(e.Holes) > MaxHoles || len(e.Body.Refs) > MaxRefs || e.Body.Lists < 0 || e.Body.Lists > MaxLists ||
		e.Body.Lists > 0 && len(e.Body.Refs) == 0 {
		return fmt.Errorf("too many holes or references")
	}
	if e.Size < 0 {
		return fmt.Errorf("a size below 0")
	}
	data, next := e.Size, int64(0)
	for i, h := range e.Holes {
		if h.Length <= 0 || h.Offset < next || i > 0 && h.Offset == next || h.Length > e.Size-h.Offset {
			return fmt.Errorf("holes overlap, touch or lie outside the file")
		}
		next = h.Offset + h.Length
		data -= h.Length
	}
	var sum int64
	for _, r := range e.Body.Refs {
		if !r.ok() {
			return fmt.Errorf("a reference to nothing")
		}
		sum += int64(r.Size)
	}
	if e.Body.Lists == 0 && sum != data || e.Body.Lists > 0 && data == 0 {
		return fmt.Errorf("%d bytes in chunks, not %d", sum, data)
	}
	return nil
}
