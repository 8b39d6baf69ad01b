package volume

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/transfer"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// copying is the flags of muster volume cp.
type copying struct {
	dry, checksum bool
	label         string
	seq           int64
}

func copyFiles(s *base.Session) *cobra.Command {
	var f copying
	cmd := &cobra.Command{
		Use:   "cp SOURCE TARGET",
		Short: "Copy a file or folder to or from a volume, without a cluster",
		Long: `Copy a file or a folder to or from a volume, without a cluster. A place in a volume is VOLUME:/PATH.
Afterwards the target folder has what the source folder has; what else it had stays.

An upload becomes the volume's next snapshot once all of it is stored; interrupted at any moment, the volume is
as it was. The same command, given again, goes on where it was. Only chunks are sent that the volume does not have.
While a cluster writes the volume, an upload is refused.`,
		Example: `  muster volume cp ./data training-data:/data
  muster volume cp training-data:/checkpoints ./checkpoints`,
		Args: base.Exactly("SOURCE", "TARGET"),
		RunE: func(cmd *cobra.Command, args []string) error {
			fromVolume, from, err := parsePlace(args[0])
			if err != nil {
				return err
			}
			toVolume, to, err := parsePlace(args[1])
			switch {
			case err != nil:
				return err
			case (fromVolume == "") == (toVolume == ""):
				return fault.New(fault.Invalid, "one of the two has to be in a volume, as VOLUME:/PATH, and the other one here")
			case fromVolume != "":
				return f.download(cmd, s, fromVolume, from, to)
			}
			return f.upload(cmd, s, toVolume, from, to)
		},
	}
	cmd.Flags().BoolVar(&f.dry, "dry-run", false, "only report what would be copied")
	cmd.Flags().BoolVar(&f.checksum, "checksum", false, "read all files, also those whose size and time have not "+
		"changed, and make a snapshot in any case")
	cmd.Flags().StringVar(&f.label, "label", "", "label of the snapshot that an upload makes")
	cmd.Flags().Int64Var(&f.seq, "seq", 0, "number of the snapshot to download from (default: the last one)")
	return cmd
}

// parsePlace splits VOLUME:/PATH; a path of this machine has no volume.
func parsePlace(arg string) (volume, at string, err error) {
	name, rest, colon := strings.Cut(arg, ":")
	if !colon || name == "" || strings.ContainsAny(name, `/\.`) || len(name) == 1 { // C:\ is a disk
		return "", arg, nil
	}
	for _, part := range strings.Split(rest, "/") {
		if part == ".." {
			return "", "", fault.New(fault.Invalid, "%s: the path of a volume has no ..", arg)
		}
	}
	return name, path.Clean("/" + rest), nil
}

// elements are the names of a path in a volume.
func elements(at string) []string {
	if at == "/" {
		return nil
	}
	return strings.Split(strings.TrimPrefix(at, "/"), "/")
}

// journalHead is the first line of an upload's journal.
type journalHead struct {
	Server   string         `json:"server"`
	Volume   id.Volume      `json:"volume"`
	From     string         `json:"from"`
	To       string         `json:"to"`
	Transfer id.DataSession `json:"transfer"`
	Snapshot id.Snapshot    `json:"snapshot"`
}

func (h journalHead) fresh() journalHead {
	h.Transfer, h.Snapshot = id.New[id.DataSession](), id.New[id.Snapshot]()
	return h
}

// openJournal opens the journal of an upload, or begins one. It lies with the user's caches: without it, an upload
// begins again.
func openJournal(ctx context.Context, about journalHead) (j *transfer.Journal, head journalHead, err error) {
	dir := base.Variable(ctx, "XDG_CACHE_HOME")
	if dir == "" {
		home := base.Variable(ctx, "HOME")
		if home == "" {
			return nil, head, fault.New(fault.Invalid, "neither XDG_CACHE_HOME nor HOME is set, so there is no place to note "+
				"what is sent: set HOME")
		}
		dir = filepath.Join(home, ".cache")
	}
	dir = filepath.Join(dir, "muster", "uploads")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, head, fault.New(fault.Invalid, "there is no place to note what is sent: %s", err)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{about.Server, about.Volume.String(), about.From, about.To}, "\x00")))
	j, _, err = transfer.OpenJournal(filepath.Join(dir, hex.EncodeToString(sum[:12])), about.fresh(), &head)
	if errors.Is(err, transfer.ErrBusy) {
		return nil, head, fault.New(fault.Conflict, "the same copy runs already: wait for its end")
	}
	if err != nil {
		return nil, head, fault.New(fault.Invalid, "what is sent cannot be noted: %s", err)
	}
	return j, head, nil
}

func (f *copying) upload(cmd *cobra.Command, s *base.Session, name, from, to string) error {
	c, ctx := s.Client(cmd), cmd.Context()
	vol, err := base.FindVolume(ctx, c, name)
	if err != nil {
		return err
	}
	if from, err = filepath.Abs(from); err != nil {
		return err
	}
	if _, err := os.Stat(from); err != nil {
		return fault.New(fault.Invalid, "%s", err)
	}
	if f.dry {
		return f.dryUpload(cmd, s, c, vol, from, to)
	}
	j, head, err := openJournal(ctx, journalHead{Server: c.Server(), Volume: vol, From: from, To: to})
	if err != nil {
		return err
	}
	open := client.NewTransfer{Direction: "upload"}
	t, err := c.Volumes.OpenTransfer(ctx, vol, head.Transfer, open)
	if over(err) {
		head = head.fresh()
		if err = j.Restart(head); err == nil {
			t, err = c.Volumes.OpenTransfer(ctx, vol, head.Transfer, open)
		}
	}
	if err != nil {
		return errors.Join(err, j.Close())
	}
	out, err := f.run(cmd, c, t, vol, head, &transfer.Upload{From: from, To: elements(to), Journal: j})
	if fault.Is(err, fault.QuotaExceeded) { // what it has sent so far would count
		_ = c.Volumes.CloseTransfer(ctx, vol, head.Transfer)
	}
	if err != nil {
		_ = j.Close()
		return resumable(err)
	}
	if out.Unchanged { // nothing ended the transfer
		if err := c.Volumes.CloseTransfer(ctx, vol, head.Transfer); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	return s.Result(cmd, resultOf(out), j.Remove(), func(p *base.Printer) {
		if out.Unchanged {
			p.Line("Snapshot %d has all of it already: %s of %s. No snapshot was made.", t.HeadSeq,
				base.Counted(int(out.Files), "file"), base.Bytes(out.Bytes))
			return
		}
		p.Line("Snapshot %d has %s of %s: %s were read, %s sent.", out.Seq, base.Counted(int(out.Files), "file"),
			base.Bytes(out.Bytes), base.Bytes(out.Read), base.Bytes(out.Moved))
		f.notes(p, out)
	})
}

func (f *copying) notes(p *base.Printer, out transfer.Uploaded) {
	if out.LeftOut > 0 {
		p.Line("Left out, as they are devices, sockets or FIFOs: %s.", base.Counted(int(out.LeftOut), "file"))
	}
	if out.Changed > 0 {
		p.Line("Changed while they were read: %s. Copy again to have them whole.", base.Counted(int(out.Changed), "file"))
	}
}

// run uploads in an open transfer.
func (f *copying) run(cmd *cobra.Command, c *client.Client, t client.Transfer, vol id.Volume, head journalHead,
	u *transfer.Upload) (transfer.Uploaded, error) {
	var err error
	r := remote{c, vol, head.Transfer, head.Snapshot, f.label}
	if u.Session, err = session(r, t); err != nil {
		return transfer.Uploaded{}, err
	}
	u.Checksum, u.Limit, u.Always = f.checksum, t.SizeGB*1e9, f.checksum || f.label != ""
	view := newMeter(cmd.ErrOrStderr(), "sent")
	u.Progress = view.show
	out, err := u.Run(cmd.Context())
	view.end()
	return out, err
}

// dryUpload reports what an upload would send.
func (f *copying) dryUpload(cmd *cobra.Command, s *base.Session, c *client.Client, vol id.Volume, from,
	to string) error {
	v, err := c.Volumes.Get(cmd.Context(), vol)
	if err != nil {
		return err
	}
	head := journalHead{}.fresh()
	t := client.Transfer{SizeGB: v.SizeGB, Key: make([]byte, chunk.KeySize)}
	_, _ = rand.Read(t.Key) // never fails; the volume is empty, so that nothing is compared with what it has
	if v.HeadSeq > 0 {
		if t, err = c.Volumes.OpenTransfer(cmd.Context(), vol, head.Transfer,
			client.NewTransfer{Direction: "download"}); err != nil {
			return err
		}
		defer func() { _ = c.Volumes.CloseTransfer(context.WithoutCancel(cmd.Context()), vol, head.Transfer) }()
	}
	out, err := f.run(cmd, c, t, vol, head, &transfer.Upload{From: from, To: elements(to), Dry: true})
	return s.Result(cmd, resultOf(out), err, func(p *base.Printer) {
		p.Line("%s of %s would be uploaded, for which about %s would be sent. Nothing was changed.",
			base.Counted(int(out.Files), "file"), base.Bytes(out.Bytes), base.Bytes(out.Moved))
		f.notes(p, out)
	})
}

// copied is the result of a copy, for programs.
type copied struct {
	Seq     int64 `json:"seq,omitempty"`
	Files   int64 `json:"files"`
	Bytes   int64 `json:"bytes"`
	Moved   int64 `json:"moved_bytes"`
	LeftOut int64 `json:"left_out,omitempty"`
	Changed int64 `json:"changed,omitempty"`
	// Unchanged: the volume had everything, and no snapshot was made.
	Unchanged bool `json:"unchanged,omitempty"`
}

func resultOf(o transfer.Uploaded) copied {
	return copied{Seq: o.Seq, Files: o.Files, Bytes: o.Bytes, Moved: o.Moved, LeftOut: o.LeftOut, Changed: o.Changed,
		Unchanged: o.Unchanged}
}

func (f *copying) download(cmd *cobra.Command, s *base.Session, name, from, to string) error {
	c, ctx := s.Client(cmd), cmd.Context()
	vol, err := base.FindVolume(ctx, c, name)
	if err != nil {
		return err
	}
	transferID := id.New[id.DataSession]()
	t, err := c.Volumes.OpenTransfer(ctx, vol, transferID, client.NewTransfer{Direction: "download", Seq: f.seq})
	if err != nil {
		return err
	}
	defer func() { _ = c.Volumes.CloseTransfer(context.WithoutCancel(ctx), vol, transferID) }()
	d := transfer.Download{From: from, To: to, Dry: f.dry}
	if d.Session, err = session(remote{c: c, volume: vol, transfer: transferID}, t); err != nil {
		return err
	}
	view := newMeter(cmd.ErrOrStderr(), "received")
	d.Progress = view.show
	out, err := d.Run(ctx)
	view.end()
	if err != nil {
		return resumable(err)
	}
	return s.Result(cmd, copied{Files: out.Files, Bytes: out.Bytes, Moved: out.Moved}, nil, func(p *base.Printer) {
		if f.dry {
			p.Line("%s of %s would be downloaded. Nothing was changed.", base.Counted(int(out.Files), "file"),
				base.Bytes(out.Bytes))
			return
		}
		p.Line("Copied %s of %s to %s: %s were received, %s were here already.", base.Counted(int(out.Files), "file"),
			base.Bytes(out.Bytes), to, base.Bytes(out.Moved), base.Bytes(out.Kept))
	})
}

// over reports whether an upload that was begun earlier cannot go on, and has to begin again.
func over(err error) bool {
	var f *fault.Fault
	return errors.As(err, &f) && f.Kind == fault.Conflict && reason(f) == "transfer_over"
}

func reason(f *fault.Fault) string {
	switch r := f.Extra["reason"].(type) {
	case string:
		return r
	case fmt.Stringer:
		return r.String()
	}
	return strings.Trim(fmt.Sprintf("%s", f.Extra["reason"]), `"`)
}

// resumable adds to an error what the user can do.
func resumable(err error) error {
	var f *fault.Fault
	if errors.As(err, &f) && f.Kind != fault.Unavailable && f.Kind != fault.RateLimited {
		return err
	}
	if errors.Is(err, context.Canceled) {
		return fault.Wrap(err, fault.Unavailable, "interrupted: the same command goes on where it was")
	}
	text := err.Error()
	if f != nil {
		text = f.Message
	}
	return fault.Wrap(err, fault.Unavailable, "%s. The same command goes on where it was.", strings.TrimSuffix(text, "."))
}

// session makes what package transfer needs of an open transfer.
func session(r remote, t client.Transfer) (*transfer.Session, error) {
	keys, err := chunk.NewKeys(t.Key)
	if err != nil {
		return nil, err
	}
	s := &transfer.Session{Remote: r, Keys: keys, HTTP: &http.Client{}}
	if t.Snapshot == nil {
		return s, nil
	}
	root := t.Snapshot.Root
	raw, err := hex.DecodeString(root.ID)
	if err != nil || len(raw) != len(chunk.ID{}) {
		return nil, errors.New("the server's answer has no root of the snapshot")
	}
	s.Base = &manifest.Ref{ID: chunk.ID(raw), Pack: root.Pack, Offset: root.Offset, Length: root.Length, Size: root.Size}
	return s, nil
}

// remote is the server's side of a transfer, by REST.
type remote struct {
	c        *client.Client
	volume   id.Volume
	transfer id.DataSession
	snapshot id.Snapshot
	label    string
}

func (r remote) Reserve(ctx context.Context, count int) (first int64, n int, err error) {
	out, err := r.c.Volumes.ReservePacks(ctx, r.volume, r.transfer, client.PackCount{Count: count})
	return out.First, out.Count, err
}

func (r remote) Store(ctx context.Context, n int64, sum [32]byte, bytes int64) (transfer.Request, error) {
	out, err := r.c.Volumes.StorePack(ctx, r.volume, r.transfer, n, client.NewPack{SHA256: sum[:], Bytes: bytes})
	return requestOf(out), err
}

func (r remote) Read(ctx context.Context, n int64) (transfer.Request, error) {
	out, err := r.c.Volumes.ReadPack(ctx, r.volume, r.transfer, n)
	return requestOf(out), err
}

func requestOf(p client.PackRequest) transfer.Request {
	return transfer.Request{Stored: p.Stored, Method: p.Method, URL: p.URL, Header: p.Header, Bytes: p.Bytes}
}

func (r remote) Commit(ctx context.Context, s transfer.Snapshot) (seq int64, missing []int64, err error) {
	out, err := r.c.Volumes.CommitUpload(ctx, r.volume, r.transfer, client.NewUpload{
		Snapshot: r.snapshot, Packs: s.Packs, Bytes: s.Bytes, Files: s.Files, LeftOut: s.LeftOut, Label: r.label,
		Root: client.PackPlace{ID: s.Root.ID.String(), Pack: s.Root.Pack, Offset: s.Root.Offset, Length: s.Root.Length,
			Size: s.Root.Size},
	})
	return out.Seq, out.Missing, err
}

func (r remote) Report(ctx context.Context, p transfer.Progress) error {
	return r.c.Volumes.ReportTransfer(ctx, r.volume, r.transfer, client.TransferProgress{Sent: p.Done, Total: p.Total})
}

// A meter shows how far a copy is, on a terminal.
type meter struct {
	w     io.Writer // nil: there is no terminal
	moved string    // what happened to the bytes that moved
	begun time.Time
	shown time.Time
	any   bool
}

func newMeter(w io.Writer, moved string) *meter {
	m := &meter{moved: moved, begun: time.Now()}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		m.w = w
	}
	return m
}

const showEvery = 200 * time.Millisecond

func (m *meter) show(p transfer.Progress) {
	now := time.Now()
	if m.w == nil || now.Sub(m.shown) < showEvery {
		return
	}
	m.shown, m.any = now, true
	fmt.Fprintf(m.w, "\r\x1b[K%s", lineOf(p, m.moved, now.Sub(m.begun)))
}

func (m *meter) end() {
	if m.any {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}

// lineOf describes progress after a time: how much, how fast, and how long it will take.
func lineOf(p transfer.Progress, moved string, after time.Duration) string {
	line := fmt.Sprintf("%s of %s", base.Bytes(p.Done), base.Bytes(p.Total))
	rate := float64(p.Done) / max(after.Seconds(), 0.001)
	if after >= time.Second && p.Done > 0 {
		left := time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second)).Round(time.Second)
		line += fmt.Sprintf(", %s/s, %s left", base.Bytes(int64(rate)), left)
	}
	return line + fmt.Sprintf(", %s %s", base.Bytes(p.Moved), moved)
}
