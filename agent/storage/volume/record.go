package volume

import (
	"bufio"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Records lie in the volume's own file system, beside the workload's folder: they live exactly as long as the data
// that they describe. So they are never synced: what a crash of the machine takes, it takes with the data.
const (
	stateName = "state"
	openName  = "open"
	sentName  = "open.packs"
)

// openFile is a snapshot that is not committed yet. It is written before the first request about it.
type openFile struct {
	ID, Cause, Label, Consistency string
	AllRanks                      bool

	BaseSeq int64
	CutBoot int64 // CLOCK_BOOTTIME in milliseconds
	Tree    *tree
	Sealed  bool // all packs are stored, and the commit was requested: Root and Meta are set
	Root    manifest.Ref
	Meta    []manifest.Ref
	Packs   []byte
	Files   int64
	Bytes   int64
}

func (o *openFile) state(seq int64, as string) stateFile {
	return stateFile{Snapshot: o.ID, As: as, Seq: seq, Tree: o.Tree, Meta: o.Meta}
}

func (o *openFile) commit(bootMS int64) *agentapi.CommitVolume {
	return &agentapi.CommitVolume{
		Snapshot: o.ID, BaseSeq: o.BaseSeq, Root: placeOf(o.Root), Packs: o.Packs, LogicalBytes: o.Bytes, Files: o.Files,
		LeftOut: o.Tree.LeftOut, CutAtMS: bootMS, Cause: o.Cause, Consistency: o.Consistency, Label: o.Label,
	}
}

// save replaces a record as a whole.
func (v *Volume) save(name string, what any) error {
	fd, err := openIn(int(v.cutDir.Fd()), name+".new", unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	w := bufio.NewWriterSize(f, 1<<20)
	err = gob.NewEncoder(w).Encode(what)
	if err = errors.Join(err, w.Flush(), f.Close()); err != nil {
		return fmt.Errorf("write the record %s: %w", name, err)
	}
	return unix.Renameat(int(v.cutDir.Fd()), name+".new", int(v.cutDir.Fd()), name)
}

// load reads a record; ok is false if there is none.
func (v *Volume) load(name string, into any) (ok bool, err error) {
	fd, err := openIn(int(v.cutDir.Fd()), name, unix.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if err := gob.NewDecoder(bufio.NewReaderSize(f, 1<<20)).Decode(into); err != nil {
		return false, fmt.Errorf("read the record %s: %w", name, err)
	}
	return true, nil
}

func (v *Volume) forget(name string) error {
	err := unix.Unlinkat(int(v.cutDir.Fd()), name, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the record %s: %w", name, err)
	}
	return nil
}

// forgetOpen removes the records of the snapshot under way, the list of its packs last: without the record it means
// nothing.
func (v *Volume) forgetOpen() error { return errors.Join(v.forget(openName), v.forget(sentName)) }

const sentSize = len(chunk.ID{}) + 8 + 3*4

// noteSent appends the chunks of a pack that is stored.
func (v *Volume) noteSent(refs []manifest.Ref) error {
	b := make([]byte, 0, len(refs)*sentSize)
	for _, r := range refs {
		b = append(b, r.ID[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Pack))
		for _, n := range []uint32{r.Offset, r.Length, r.Size} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
	}
	fd, err := openIn(int(v.cutDir.Fd()), sentName, unix.O_WRONLY|unix.O_CREAT|unix.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), sentName)
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// sent reads the chunks that are stored for the snapshot under way. A line that was cut off by a kill is left out: its
// chunk is sent once more.
func (v *Volume) sent(each func(manifest.Ref)) error {
	fd, err := openIn(int(v.cutDir.Fd()), sentName, unix.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), sentName)
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for b := make([]byte, sentSize); ; {
		if _, err := io.ReadFull(in, b); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return nil
			}
			return fmt.Errorf("read the list of packs: %w", err)
		}
		r := manifest.Ref{ID: chunk.ID(b[:32]), Pack: int64(binary.LittleEndian.Uint64(b[32:])),
			Offset: binary.LittleEndian.Uint32(b[40:]), Length: binary.LittleEndian.Uint32(b[44:]),
			Size: binary.LittleEndian.Uint32(b[48:])}
		each(r)
	}
}
