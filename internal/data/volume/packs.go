package volume

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

const (
	sessionLife = agentapi.VolumeSessionS * time.Second
	// putLife is how long signed requests to store hold, and getLife those of hosts to read. A transfer of a pack that
	// takes longer is signed again. Requests of people to read hold for fileLife: each is counted once, and may be sent
	// again for as long as it holds.
	putLife  = 15 * time.Minute
	getLife  = 15 * time.Minute
	fileLife = 3 * time.Minute
)

func clip(s string) string { return agentapi.CleanText(text.Clip(s, 500)) }

// packs gives sessions the numbers of packs, and the signed requests that store and read them.
type packs struct {
	d        *db.DB
	store    store.Store
	sessions *sessions
	limiter  *limiter
}

// reserve reserves numbers for packs.
func (ps *packs) reserve(ctx context.Context, session id.DataSession, count int) (*agentapi.ReservedPacks, error) {
	if count < 1 || count > agentapi.MaxReserve {
		return nil, refused(agentapi.VolumeMalformed, "reserve 1 to %d packs", agentapi.MaxReserve)
	}
	out := &agentapi.ReservedPacks{Count: count}
	err := ps.sessions.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		d dbq.DataDomain) (err error) {
		out.First, err = tx.Q.ReserveDataPacks(ctx, d.ID, int64(count), x.ID)
		if err != nil {
			return fmt.Errorf("reserve packs of %s: %w", d.ID, err)
		}
		return nil
	})
	return out, err
}

// grant returns requests to store packs. A pack that was granted before gets a new request.
func (ps *packs) grant(ctx context.Context, session id.DataSession, g agentapi.GrantPacks) (*agentapi.GrantedPacks,
	error) {
	if _, err := id.Parse[id.Snapshot](g.Snapshot); err != nil || len(g.Packs) == 0 || len(g.Packs) > agentapi.MaxGrants {
		return nil, refused(agentapi.VolumeMalformed, "grant 1 to %d packs of a snapshot", agentapi.MaxGrants)
	}
	var ns []int64
	for _, p := range g.Packs {
		if p.N < 1 || len(p.SHA256) != 32 || p.Bytes < 1 || p.Bytes > chunk.PackSize || slices.Contains(ns, p.N) {
			return nil, refused(agentapi.VolumeMalformed, "pack %d: number, length or SHA-256 are malformed", p.N)
		}
		ns = append(ns, p.N)
	}
	out := &agentapi.GrantedPacks{}
	err := ps.sessions.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession,
		d dbq.DataDomain) error {
		out.Packs = nil
		reserved, err := tx.Q.ReservedBy(ctx, ns, d.ID, x.ID)
		if err != nil {
			return fmt.Errorf("reserved packs of %s: %w", x.ID, err)
		}
		if reserved != int64(len(ns)) {
			return refused(agentapi.VolumeMalformed, "a pack has a number that the session did not reserve")
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		return ps.grantAll(ctx, tx, x, g.Packs, ns, now.Add(putLife), out)
	})
	return out, err
}

func (ps *packs) grantAll(ctx context.Context, tx *db.Tx, x dbq.DataSession, packs []agentapi.PackGrant, ns []int64,
	until time.Time, out *agentapi.GrantedPacks) error {
	rows, err := tx.Q.DataPacks(ctx, x.DomainID, ns)
	if err != nil {
		return fmt.Errorf("packs of %s: %w", x.DomainID, err)
	}
	have := map[int64]dbq.DataPack{}
	for _, r := range rows {
		have[r.N] = r
	}
	fresh := dbq.InsertDataPacksParams{DomainID: x.DomainID, SessionID: x.ID, URLUntil: until}
	var again []int64
	bytes := int64(0)
	for _, p := range packs {
		old, known := have[p.N]
		switch {
		case known && (!slices.Equal(old.Sha256, p.SHA256) || old.Bytes != p.Bytes):
			return refused(agentapi.VolumeMalformed, "pack %d was granted with other bytes: use another number", p.N)
		case known && old.State == "live":
			out.Packs = append(out.Packs, agentapi.PackURL{N: p.N, Stored: true})
			continue
		case known && old.State != "granted":
			return refused(agentapi.VolumeMalformed, "pack %d is being removed: use another number", p.N)
		case known:
			again = append(again, p.N)
		default:
			bytes += p.Bytes
			fresh.Ns, fresh.Sums, fresh.Sizes = append(fresh.Ns, p.N), append(fresh.Sums, p.SHA256),
				append(fresh.Sizes, p.Bytes)
		}
		r, err := ps.store.SignPut(ctx, store.Key(x.DomainID, p.N), [32]byte(p.SHA256), p.Bytes, until)
		if err != nil {
			return fmt.Errorf("sign pack %d of %s: %w", p.N, x.DomainID, err)
		}
		out.Packs = append(out.Packs, agentapi.PackURL{
			N: p.N, Method: r.Method, URL: r.URL, Header: r.Header, UntilMS: until.UnixMilli(),
		})
	}
	if len(again) > 0 {
		err = tx.Q.RenewDataPacks(ctx, until, x.DomainID, again)
	}
	if err == nil && bytes > 0 {
		err = tx.Q.InsertDataPacks(ctx, fresh)
	}
	if err != nil {
		return fmt.Errorf("grant packs of %s: %w", x.DomainID, err)
	}
	if bytes == 0 {
		return nil
	}
	return ps.limiter.admit(ctx, tx, x, bytes)
}

// read returns requests to read packs of the snapshot that a session continues from.
func (ps *packs) read(ctx context.Context, s dbq.DataSessionRow, ns []int64) (*agentapi.ReadablePacks, error) {
	x := s.DataSession
	if len(ns) == 0 || len(ns) > agentapi.MaxReads {
		return nil, refused(agentapi.VolumeMalformed, "read 1 to %d packs", agentapi.MaxReads)
	}
	base, err := manifest.DecodePackSet(x.BasePacks)
	if err != nil {
		return nil, fmt.Errorf("packs of %s: %w", x.ID, err)
	}
	for _, n := range ns {
		if !base.Has(n) {
			return nil, refused(agentapi.VolumeNotFound, "pack %d is not of the session's snapshot", n)
		}
	}
	rows, err := ps.d.Q.DataPacks(ctx, x.DomainID, ns)
	if err != nil {
		return nil, fmt.Errorf("packs of %s: %w", x.DomainID, err)
	}
	have, bytes := map[int64]dbq.DataPack{}, int64(0)
	for _, r := range rows {
		have[r.N] = r
		bytes += r.Bytes
	}
	life, byHost := getLife, true
	if x.LeaseID.IsZero() {
		life, byHost = fileLife, false
	}
	org, err := ps.d.Q.OrgOfDomain(ctx, x.DomainID)
	if err != nil {
		return nil, fmt.Errorf("organisation of %s: %w", x.DomainID, err)
	}
	if err := ps.limiter.serveBytes(ctx, org, bytes, byHost); err != nil {
		return nil, err
	}
	out := &agentapi.ReadablePacks{}
	until := time.Now().Add(life)
	for _, n := range ns {
		p, ok := have[n]
		if !ok {
			return nil, fmt.Errorf("pack %d of %s is gone, although a session needs it", n, x.DomainID)
		}
		r, err := ps.store.SignGet(ctx, store.Key(x.DomainID, n), until)
		if err != nil {
			return nil, fmt.Errorf("sign pack %d of %s: %w", n, x.DomainID, err)
		}
		out.Packs = append(out.Packs, agentapi.PackURL{
			N: n, Method: r.Method, URL: r.URL, Header: r.Header, UntilMS: until.UnixMilli(), Bytes: p.Bytes, SHA256: p.Sha256,
		})
	}
	return out, ps.d.Q.RenewDataSession(ctx, lifeOf(x).Seconds(), x.ID)
}
