package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// refused is a reply of Serve that is an error.
func refused(code, format string, args ...any) *agentapi.VolumeError {
	return &agentapi.VolumeError{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Refusals that several requests share.
var (
	errFenced   = refused(agentapi.VolumeFenced, "this run of the lease does not write the volume any more")
	errNoVolume = refused(agentapi.VolumeNotFound, "the lease has no such volume")
)

// Hosts answers the requests of hosts about the volumes of their leases.
type Hosts struct {
	d        *db.DB
	store    store.Store // nil: this platform has no volumes
	log      *slog.Logger
	sessions *sessions
	packs    *packs
	commits  *commits
	rounds   *rounds
}

// Serve answers a host's request about a volume of one of its leases. Every error is in the reply; those that only the
// log may see are logged.
func (hs *Hosts) Serve(ctx context.Context, h id.Host, r agentapi.VolumeRequest) agentapi.VolumeReply {
	reply, err := hs.serve(ctx, h, r)
	if err == nil {
		return reply
	}
	var e *agentapi.VolumeError
	if !errors.As(err, &e) {
		hs.log.Error("a host's request about a volume failed", "host", h, "what", r.Op, "volume", r.Volume, "err", err)
		e = refused(agentapi.VolumeAway, "the control plane cannot answer now")
	}
	return agentapi.VolumeReply{Error: e}
}

// run is whose request it is.
type run struct {
	host   id.Host
	lease  id.Lease
	epoch  int32
	volume id.Volume
}

func (hs *Hosts) serve(ctx context.Context, h id.Host, r agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	var out agentapi.VolumeReply
	if hs.store == nil {
		return out, errNoVolume
	}
	vol, err := id.Parse[id.Volume](r.Volume)
	lease, err2 := id.Parse[id.Lease](r.Lease)
	if err != nil || err2 != nil || r.Epoch < 1 || int64(r.Epoch) > 1<<31-1 {
		return out, refused(agentapi.VolumeMalformed, "volume, lease or epoch are malformed")
	}
	who := run{h, lease, int32(r.Epoch), vol}
	if r.Op == agentapi.VolumeOpen && r.Open != nil {
		out.Open, err = hs.sessions.open(ctx, who, r.Open.Mode)
		return out, err
	}
	session, err := id.Parse[id.DataSession](r.Session)
	if err != nil {
		return out, refused(agentapi.VolumeMalformed, "the session is malformed")
	}
	s, err := hs.sessions.read(ctx, hs.d.Q, session)
	if err != nil {
		return out, err
	}
	if x := s.DataSession; x.VolumeID != vol || x.LeaseID != lease || x.Epoch != who.epoch || x.HostID != h {
		return out, errNoVolume
	}
	err = hs.inSession(ctx, s, r, &out)
	return out, err
}

func (hs *Hosts) inSession(ctx context.Context, s dbq.DataSessionRow, r agentapi.VolumeRequest,
	out *agentapi.VolumeReply) (err error) {
	x := s.DataSession
	switch {
	case r.Op == agentapi.VolumeReserve && r.Reserve != nil:
		out.Reserve, err = hs.packs.reserve(ctx, x.ID, r.Reserve.Count)
	case r.Op == agentapi.VolumeGrant && r.Grant != nil:
		out.Grant, err = hs.packs.grant(ctx, x.ID, *r.Grant)
	case r.Op == agentapi.VolumeCommit && r.Commit != nil:
		out.Commit, err = hs.commits.commit(ctx, x.ID, *r.Commit)
	case r.Op == agentapi.VolumePrepare && r.Prepare != nil:
		out.Prepare, err = hs.rounds.prepare(ctx, x.ID, *r.Prepare)
	case r.Op == agentapi.VolumeRead && r.Read != nil:
		out.Read, err = hs.packs.read(ctx, s, r.Read.Packs)
	case r.Op == agentapi.VolumeReports && r.Report != nil:
		err = hs.sessions.report(ctx, x, *r.Report)
	case r.Op == agentapi.VolumeClose && r.Close != nil:
		err = hs.d.Q.CloseDataSession(ctx, max(0, r.Close.LostBytes), x.ID)
	default:
		err = refused(agentapi.VolumeMalformed, "unknown operation, or its field is missing")
	}
	return err
}

// Reading returns why reads of a cluster's nodes wait or fail, by the volumes that they read on demand. A volume of
// which all reads work is not in it.
func (hs *Hosts) Reading(ctx context.Context, cluster id.Cluster) (map[id.Volume]string, error) {
	rows, err := hs.d.Q.ReadingProblems(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("reads of %s: %w", cluster, err)
	}
	out := map[id.Volume]string{}
	for _, r := range rows {
		out[r.VolumeID] = r.Problem
	}
	return out, nil
}
