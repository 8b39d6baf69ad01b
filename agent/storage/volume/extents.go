package volume

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/data/manifest"
)

// The kernel's list of where the parts of a file lie on the device (linux/fiemap.h).
const (
	fiemapSync     = 0x1
	fiemapLast     = 0x1
	fiemapBatch    = 512
	fsIocFiemap    = 0xc020660b
	extentInline   = 0x200 // FIEMAP_EXTENT_DATA_INLINE
	extentUnknown  = 0x2   // FIEMAP_EXTENT_UNKNOWN
	extentDelalloc = 0x4
	extentFresh    = 0x800 // FIEMAP_EXTENT_UNWRITTEN: reads as zeros
	extentOpaque   = extentUnknown | extentDelalloc | extentInline
)

type fiemapExtent struct {
	Logical, Physical, Length uint64
	_                         [2]uint64
	Flags                     uint32
	_                         [3]uint32
}

type fiemap struct {
	Start, Length uint64
	Flags         uint32
	Mapped        uint32
	Count         uint32
	_             uint32
	Extents       [fiemapBatch]fiemapExtent
}

// maxExtents is how many extents of a file are compared; a file of more is read whole.
const maxExtents = 1 << 19

// extentsOf returns the extents of a file, and false if it has too many, or such that say nothing.
func extentsOf(f *os.File, size int64) (out []fiemapExtent, ok bool, err error) {
	m := new(fiemap)
	for at := uint64(0); at < uint64(size); {
		*m = fiemap{Start: at, Length: uint64(size) - at, Flags: fiemapSync, Count: fiemapBatch}
		_, _, e := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fsIocFiemap, uintptr(unsafe.Pointer(m)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return nil, false, fmt.Errorf("list the extents of a file: %w", e)
		}
		if m.Mapped == 0 {
			break
		}
		for _, x := range m.Extents[:m.Mapped] {
			if x.Flags&extentOpaque != 0 || len(out) == maxExtents {
				return nil, false, nil
			}
			if x.Logical >= uint64(size) { // space that XFS holds ready behind the end
				return out, true, nil
			}
			x.Length = min(x.Length, uint64(size)-x.Logical)
			out = append(out, x)
			at = x.Logical + x.Length
			if x.Flags&fiemapLast != 0 {
				return out, true, nil
			}
		}
	}
	return out, true, nil
}

// changedRanges returns the ranges of a file of size bytes in which it may differ from an older clone of it: those
// whose blocks are not the same. ok is false if the extents do not show that.
func changedRanges(file, old *os.File, size, oldSize int64) (ranges []manifest.Extent, ok bool, err error) {
	now, ok, err := extentsOf(file, size)
	if !ok || err != nil {
		return nil, false, err
	}
	was, ok, err := extentsOf(old, oldSize)
	if !ok || err != nil {
		return nil, false, err
	}
	both := min(size, oldSize)
	ranges = differences(now, was, both)
	if size > both {
		ranges = join(append(ranges, manifest.Extent{Offset: both, Length: size - both}))
	}
	return ranges, true, nil
}

// differences compares two lists of extents up to a size.
func differences(a, b []fiemapExtent, size int64) (out []manifest.Extent) {
	at := uint64(0)
	for at < uint64(size) {
		var x, y fiemapExtent
		a, x = from(a, at, uint64(size))
		b, y = from(b, at, uint64(size))
		end := min(x.Logical+x.Length, y.Logical+y.Length)
		if x.Physical != y.Physical || x.Flags&extentFresh != y.Flags&extentFresh {
			out = append(out, manifest.Extent{Offset: int64(at), Length: int64(end - at)})
		}
		at = end
	}
	return join(out)
}

// from returns what is at an offset: the rest of an extent, or a hole of physical address 0; and the extents from
// there.
func from(list []fiemapExtent, at, size uint64) ([]fiemapExtent, fiemapExtent) {
	for len(list) > 0 && list[0].Logical+list[0].Length <= at {
		list = list[1:]
	}
	if len(list) == 0 || list[0].Logical > at {
		end := size
		if len(list) > 0 {
			end = min(end, list[0].Logical)
		}
		return list, fiemapExtent{Logical: at, Length: end - at}
	}
	x := list[0]
	skip := at - x.Logical
	x.Logical, x.Physical, x.Length = at, x.Physical+skip, min(x.Length-skip, size-at)
	return list, x
}

// join merges ranges that touch.
func join(ranges []manifest.Extent) []manifest.Extent {
	slices.SortFunc(ranges, func(a, b manifest.Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && out[n-1].Offset+out[n-1].Length >= r.Offset {
			out[n-1].Length = max(out[n-1].Length, r.Offset+r.Length-out[n-1].Offset)
			continue
		}
		out = append(out, r)
	}
	return out
}

// holesOf returns the holes of a file, at most as many as a manifest may have: the largest. What is in the others
// counts as zeros.
func holesOf(f *os.File, size int64) (holes []manifest.Extent, err error) {
	for at := int64(0); at < size; {
		data, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // nothing but a hole up to the end
			data = size
		} else if err != nil {
			return nil, fmt.Errorf("look for the holes of a file: %w", err)
		}
		if data = min(data, size); data > at {
			holes = append(holes, manifest.Extent{Offset: at, Length: data - at})
		}
		if data >= size {
			break
		}
		at, err = unix.Seek(int(f.Fd()), data, unix.SEEK_HOLE)
		if err != nil {
			return nil, fmt.Errorf("look for the holes of a file: %w", err)
		}
	}
	if len(holes) > manifest.MaxHoles { // keep the largest
		slices.SortFunc(holes, func(a, b manifest.Extent) int { return cmp.Compare(b.Length, a.Length) })
		holes = holes[:manifest.MaxHoles]
		slices.SortFunc(holes, func(a, b manifest.Extent) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	return holes, nil
}
