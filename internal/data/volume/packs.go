package volume

import (
	"bytes"
	"context"
	"errors"
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
	// putLife and getLife are how long signed requests hold. An upload of a pack that takes longer is granted again.
	putLife = 15 * time.Minute
	getLife = time.Hour
)

func clip(s string) string { return agentapi.CleanText(text.Clip(s, 500)) }

// inDomain runs f with the data domain of a session locked, if it may write.
func (v *Volumes) inDomain(ctx context.Context, session id.DataSession,
	f func(context.Context, *db.Tx, dbq.DataSession, dbq.DataDomain) error) error {
	return v.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		s, err := v.session(ctx, tx.Q, session)
		if err != nil {
			return err
		}
		d, err := tx.Q.LockDataDomain(ctx, s.DataSession.DomainID)
		if err != nil {
			return fmt.Errorf("lock %s: %w", s.DataSession.DomainID, err)
		}
		if s, err = v.session(ctx, tx.Q, session); err != nil { // under the lock
			return err
		}
		if s.DataSession.Mode == agentapi.MountRO {
			return refused(agentapi.VolumeFenced, "the volume is mounted read-only")
		}
		if err := tx.Q.RenewDataSession(ctx, lifeOf(s.DataSession).Seconds(), session); err != nil {
			return fmt.Errorf("renew %s: %w", session, err)
		}
		return f(ctx, tx, s.DataSession, d)
	})
}

// reserve reserves numbers for packs.
func (v *Volumes) reserve(ctx context.Context, session id.DataSession, count int) (*agentapi.ReservedPacks, error) {
	if count < 1 || count > agentapi.MaxReserve {
		return nil, refused(agentapi.VolumeMalformed, "reserve 1 to %d packs", agentapi.MaxReserve)
	}
	out := &agentapi.ReservedPacks{Count: count}
	err := v.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession, d dbq.DataDomain) (err error) {
		out.First, err = tx.Q.ReserveDataPacks(ctx, d.ID, int64(count), x.ID)
		if err != nil {
			return fmt.Errorf("reserve packs of %s: %w", d.ID, err)
		}
		return nil
	})
	return out, err
}

// grant returns requests to store packs. A pack that was granted before gets a new request.
func (v *Volumes) grant(ctx context.Context, session id.DataSession, g agentapi.GrantPacks) (*agentapi.GrantedPacks,
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
	err := v.inDomain(ctx, session, func(ctx context.Context, tx *db.Tx, x dbq.DataSession, d dbq.DataDomain) error {
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
		return v.grantAll(ctx, tx, x, g.Packs, ns, now.Add(putLife), out)
	})
	return out, err
}

func (v *Volumes) grantAll(ctx context.Context, tx *db.Tx, x dbq.DataSession, packs []agentapi.PackGrant, ns []int64,
	until time.Time, out *agentapi.GrantedPacks) error {
	rows, err := tx.Q.DataPacks(ctx, x.DomainID, ns)
	if err != nil {
		return fmt.Errorf("packs of %s: %w", x.DomainID, err)
	}
	have := map[int64]dbq.DataPack{}
	for _, r := range rows {
		have[r.N] = r
	}
	fresh := int64(0)
	for _, p := range packs {
		old, known := have[p.N]
		switch {
		case known && (!bytes.Equal(old.Sha256, p.SHA256) || old.Bytes != p.Bytes):
			return refused(agentapi.VolumeMalformed, "pack %d was granted with other bytes: use another number", p.N)
		case known && old.State == "live":
			out.Packs = append(out.Packs, agentapi.PackURL{N: p.N, Stored: true})
			continue
		case known && old.State != "granted":
			return refused(agentapi.VolumeMalformed, "pack %d is being removed: use another number", p.N)
		case known:
			err = tx.Q.RenewDataPack(ctx, until, x.DomainID, p.N)
		default:
			fresh += p.Bytes
			err = tx.Q.InsertDataPack(ctx, dbq.InsertDataPackParams{
				DomainID: x.DomainID, N: p.N, SessionID: x.ID, Sha256: p.SHA256, Bytes: p.Bytes, URLUntil: until,
			})
		}
		if err != nil {
			return fmt.Errorf("grant pack %d of %s: %w", p.N, x.DomainID, err)
		}
		r, err := v.store.SignPut(ctx, store.Key(x.DomainID, p.N), [32]byte(p.SHA256), p.Bytes, until)
		if err != nil {
			return fmt.Errorf("sign pack %d of %s: %w", p.N, x.DomainID, err)
		}
		out.Packs = append(out.Packs, agentapi.PackURL{
			N: p.N, Method: r.Method, URL: r.URL, Header: r.Header, UntilMS: until.UnixMilli(),
		})
	}
	if fresh == 0 {
		return nil
	}
	return v.limit(ctx, tx, x, fresh)
}

// limit counts granted bytes, and refuses those that exceed what the organisation may store.
func (v *Volumes) limit(ctx context.Context, tx *db.Tx, x dbq.DataSession, fresh int64) error {
	row, err := tx.Q.DomainOrg(ctx, x.DomainID)
	if err != nil {
		return fmt.Errorf("organisation of %s: %w", x.DomainID, err)
	}
	stored, err := tx.Q.StoredByOrg(ctx, row)
	if err != nil {
		return fmt.Errorf("stored by %s: %w", row, err)
	}
	if stored+fresh > v.cfg.MaxStored {
		return refused(agentapi.VolumeQuota, "the organisation stores %d GB, and may store %d GB", stored/GB,
			v.cfg.MaxStored/GB)
	}
	unpaid, err := tx.Q.UnpaidDomains(ctx, row)
	if err != nil {
		return fmt.Errorf("unpaid storage of %s: %w", row, err)
	}
	if unpaid > 0 {
		return refused(agentapi.VolumeQuota, "storage is not paid for: add credit")
	}
	if err := tx.Q.AddDataGranted(ctx, fresh, x.DomainID); err != nil {
		return fmt.Errorf("count granted bytes of %s: %w", x.DomainID, err)
	}
	return nil
}

// read returns requests to read packs of the snapshot that a session continues from.
func (v *Volumes) read(ctx context.Context, s dbq.DataSessionRow, ns []int64) (*agentapi.ReadablePacks, error) {
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
	rows, err := v.d.Q.DataPacks(ctx, x.DomainID, ns)
	if err != nil {
		return nil, fmt.Errorf("packs of %s: %w", x.DomainID, err)
	}
	have := map[int64]dbq.DataPack{}
	for _, r := range rows {
		have[r.N] = r
	}
	out := &agentapi.ReadablePacks{}
	until := time.Now().Add(getLife)
	for _, n := range ns {
		p, ok := have[n]
		if !ok {
			return nil, fmt.Errorf("pack %d of %s is gone, although a session needs it", n, x.DomainID)
		}
		r, err := v.store.SignGet(ctx, store.Key(x.DomainID, n), until)
		if err != nil {
			return nil, fmt.Errorf("sign pack %d of %s: %w", n, x.DomainID, err)
		}
		out.Packs = append(out.Packs, agentapi.PackURL{
			N: n, Method: r.Method, URL: r.URL, Header: r.Header, UntilMS: until.UnixMilli(), Bytes: p.Bytes, SHA256: p.Sha256,
		})
	}
	return out, v.d.Q.RenewDataSession(ctx, lifeOf(x).Seconds(), x.ID)
}

// verifyTime is how long one commit looks for packs in the store. What it found is noted, so that the next try goes on.
const verifyTime = 10 * time.Second

// verify looks in the store for the packs of a commit that no commit has found there yet.
func (v *Volumes) verify(ctx context.Context, x dbq.DataSession, firsts, lasts []int64) error {
	rows, err := v.d.Q.UnverifiedPacks(ctx, dbq.UnverifiedPacksParams{
		Firsts: firsts, Lasts: lasts, DomainID: x.DomainID, SessionID: x.ID,
	})
	if err != nil {
		return fmt.Errorf("packs of %s: %w", x.ID, err)
	}
	end := time.Now().Add(verifyTime)
	var found, missing []int64
	for _, r := range rows {
		if time.Now().After(end) {
			break
		}
		o, err := v.store.Head(ctx, store.Key(x.DomainID, r.N))
		switch {
		case errors.Is(err, store.ErrNotFound), err == nil && !matches(o, r.Sha256, r.Bytes):
			missing = append(missing, r.N)
		case err != nil:
			return refused(agentapi.VolumeAway, "the store does not answer")
		default:
			found = append(found, r.N)
		}
	}
	if err := v.d.Q.SetPacksVerified(ctx, x.DomainID, found); err != nil {
		return fmt.Errorf("note packs of %s: %w", x.ID, err)
	}
	if len(missing) > 0 {
		e := refused(agentapi.VolumeMissing, "%d packs are not in the store", len(missing))
		e.Packs = missing[:min(len(missing), 1000)]
		return e
	}
	if len(found) < len(rows) {
		return refused(agentapi.VolumeAway, "%d of %d packs are checked: send the commit again", len(found), len(rows))
	}
	return nil
}

// matches reports whether the store has what was granted. A store that returns no checksums has checked them at the
// PUT, which its probe made sure of.
func matches(o store.Object, sum []byte, bytes int64) bool {
	return o.Bytes == bytes && (o.Sum == [32]byte{} || o.Sum == [32]byte(sum))
}
