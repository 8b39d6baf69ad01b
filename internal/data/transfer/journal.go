package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// A Journal is a file that has what an upload has stored, so that the next attempt goes on. It is not secret: chunks'
// hashes are keyed. A tail that a kill has cut off is left out: its chunks are sent once more.
type Journal struct {
	f *os.File
}

// head is the longest first line of a journal.
const head = 16 << 10

// recordSize is the size of a chunk's record, of which the last four bytes are a checksum: a loss of power may leave
// zeros in the middle of one, and a wrong offset would spoil a snapshot.
const recordSize = 32 + 8 + 3*4 + 4

// ErrBusy is the error of a journal that another process has open.
var ErrBusy = errors.New("the same copy runs already")

// OpenJournal opens the journal of an upload, or begins it. about identifies the upload: into is what the journal was
// begun with. If that cannot be read, it begins again with fresh.
func OpenJournal(path string, fresh any, into any) (j *Journal, resumed bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, false, err
	}
	if err := lock(f); err != nil {
		_ = f.Close()
		return nil, false, ErrBusy
	}
	j = &Journal{f: f}
	in := bufio.NewReaderSize(io.LimitReader(f, head), head)
	line, err := in.ReadBytes('\n')
	if err == nil && json.Unmarshal(line, into) == nil {
		return j, true, nil
	}
	return j, false, errors.Join(j.Restart(fresh), json.Unmarshal(mustJSON(fresh), into))
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a struct of texts
	}
	return b
}

// Restart empties the journal and begins it again.
func (j *Journal) Restart(about any) error {
	if err := j.f.Truncate(0); err != nil {
		return err
	}
	_, err := j.f.Write(append(mustJSON(about), '\n'))
	return err
}

// Close closes the journal.
func (j *Journal) Close() error { return j.f.Close() }

// Remove closes and removes the journal.
func (j *Journal) Remove() error { return errors.Join(j.f.Close(), os.Remove(j.f.Name())) }

// note appends the chunks of a pack that is stored.
func (j *Journal) note(refs []manifest.Ref) error {
	b := make([]byte, 0, len(refs)*recordSize)
	for _, r := range refs {
		b = append(b, r.ID[:]...)
		b = binary.LittleEndian.AppendUint64(b, uint64(r.Pack))
		for _, n := range []uint32{r.Offset, r.Length, r.Size} {
			b = binary.LittleEndian.AppendUint32(b, n)
		}
		b = binary.LittleEndian.AppendUint32(b, crc32.ChecksumIEEE(b[len(b)-recordSize+4:]))
	}
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("note what was sent: %w", err)
	}
	return nil
}

// each calls f with the chunks that are stored, and cuts a torn tail off.
func (j *Journal) each(f func(manifest.Ref)) error {
	if _, err := j.f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(j.f, 1<<20)
	line, err := in.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("read what was sent: %w", err)
	}
	at := int64(len(line))
	for b := make([]byte, recordSize); ; at += recordSize {
		_, err := io.ReadFull(in, b)
		torn := err == nil && binary.LittleEndian.Uint32(b[recordSize-4:]) != crc32.ChecksumIEEE(b[:recordSize-4])
		if torn || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return j.f.Truncate(at)
		}
		if err != nil {
			return fmt.Errorf("read what was sent: %w", err)
		}
		f(manifest.Ref{ID: chunk.ID(b[:32]), Pack: int64(binary.LittleEndian.Uint64(b[32:])),
			Offset: binary.LittleEndian.Uint32(b[40:]), Length: binary.LittleEndian.Uint32(b[44:]),
			Size: binary.LittleEndian.Uint32(b[48:])})
	}
}
