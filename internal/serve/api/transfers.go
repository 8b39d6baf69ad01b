package api

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
)

// TransferPath is the path of every request about a transfer. It is exported because only exported parts of an input
// are read.
type TransferPath struct {
	ID       id.Volume      `path:"id"`
	Transfer id.DataSession `path:"transfer" doc:"id of the transfer, which its caller chose"`
}

type openTransferInput struct {
	TransferPath
	Body client.NewTransfer
}

// openTransfer is no POST with an idempotency key: its answer has the volume's key, which is not stored again anywhere.
func (a volumesAPI) openTransfer(ctx context.Context, p account.Principal,
	in *openTransferInput) (client.Transfer, error) {
	x, err := a.volumes.Transfers.Open(ctx, p, in.ID,
		volume.NewTransfer{ID: in.Transfer, Direction: in.Body.Direction, Seq: in.Body.Seq})
	if err != nil {
		return client.Transfer{}, err
	}
	out := client.Transfer{ID: x.ID, Direction: x.Direction, Key: x.Key, HeadSeq: x.HeadSeq,
		SizeGB: x.SizeLimit / volume.GB}
	if b := x.Base; b != nil {
		snap, err := id.Parse[id.Snapshot](b.ID)
		if err != nil {
			return out, err
		}
		out.Snapshot = &client.TransferSnapshot{ID: snap, Seq: b.Seq, Root: client.PackPlace(b.Root), Packs: b.Packs,
			Bytes: b.LogicalBytes, Files: b.Files}
	}
	return out, nil
}

type transferProgressInput struct {
	TransferPath
	Body client.TransferProgress
}

func (a volumesAPI) reportTransfer(ctx context.Context, p account.Principal,
	in *transferProgressInput) (nothing, error) {
	r := agentapi.VolumeReport{PendingBytes: max(0, in.Body.Total-in.Body.Sent), Sent: in.Body.Sent, Total: in.Body.Total}
	return nothing{}, a.volumes.Transfers.Report(ctx, p.Org, in.ID, in.Transfer, r)
}

func (a volumesAPI) closeTransfer(ctx context.Context, p account.Principal, in *TransferPath) (nothing, error) {
	return nothing{}, a.volumes.Transfers.Close(ctx, p.Org, in.ID, in.Transfer)
}

type packNumbersInput struct {
	Keyed
	TransferPath
	Body client.PackCount
}

// reservePacks needs no key: numbers that are not used cost nothing.
func (a volumesAPI) reservePacks(ctx context.Context, p account.Principal, in *packNumbersInput,
	_ idem.Request) (client.PackNumbers, idem.Outcome, error) {
	out, err := a.volumes.Transfers.Reserve(ctx, p.Org, in.ID, in.Transfer, in.Body.Count)
	return client.PackNumbers(out), idem.Outcome{}, err
}

// PackPath is the path of a request about a pack.
type PackPath struct {
	TransferPath
	N int64 `path:"n" minimum:"1" doc:"number of the pack"`
}

type newPackInput struct {
	PackPath
	Body client.NewPack
}

func (a volumesAPI) storePack(ctx context.Context, p account.Principal, in *newPackInput) (client.PackRequest, error) {
	if len(in.Body.SHA256) != 32 {
		return client.PackRequest{}, fault.InvalidField("body.sha256", "want 32 bytes in base64")
	}
	u, err := a.volumes.Transfers.StorePack(ctx, p.Org, in.ID, in.Transfer,
		agentapi.PackGrant{N: in.N, SHA256: in.Body.SHA256, Bytes: in.Body.Bytes})
	return viewPackRequest(u, in.Body.Bytes), err
}

func (a volumesAPI) readPack(ctx context.Context, p account.Principal, in *PackPath) (client.PackRequest, error) {
	u, err := a.volumes.Transfers.ReadPack(ctx, p.Org, in.ID, in.Transfer, in.N)
	return viewPackRequest(u, u.Bytes), err
}

func viewPackRequest(u agentapi.PackURL, bytes int64) client.PackRequest {
	out := client.PackRequest{N: u.N, Stored: u.Stored, Method: u.Method, URL: u.URL, Header: u.Header, Bytes: bytes}
	if out.Header == nil {
		out.Header = map[string]string{}
	}
	if u.UntilMS > 0 {
		at := time.UnixMilli(u.UntilMS).UTC()
		out.ExpiresAt = &at
	}
	return out
}

type uploadInput struct {
	TransferPath
	Body client.NewUpload
}

func (a volumesAPI) commitUpload(ctx context.Context, p account.Principal,
	in *uploadInput) (client.UploadOutcome, error) {
	b := in.Body
	if raw, err := hex.DecodeString(b.Root.ID); err != nil || len(raw) != 32 {
		return client.UploadOutcome{}, fault.InvalidField("body.root.id", "want 64 hexadecimal digits")
	}
	out, err := a.volumes.Transfers.Commit(ctx, p.Org, in.ID, in.Transfer, agentapi.CommitVolume{
		Snapshot: b.Snapshot.String(), Root: agentapi.PackPlace(b.Root), Packs: b.Packs, LogicalBytes: b.Bytes,
		Files: b.Files, LeftOut: b.LeftOut, Label: b.Label,
	})
	view := client.UploadOutcome{Seq: out.Seq, Missing: out.Missing}
	if view.Missing == nil {
		view.Missing = []int64{}
	}
	if out.Seq > 0 {
		at := out.CommittedAt.UTC()
		view.CommittedAt = &at
	}
	return view, err
}
