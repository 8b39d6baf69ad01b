package sharedfs

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
	"github.com/musterhq/muster/internal/text"
)

var markerShape = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// Most hosts have no shared file systems. That is stored for so many hosts together, within this time.
const (
	noneAtOnce = 500
	noneWithin = 10 * time.Second
)

// forgetHosts stores that hosts have no shared file systems.
func (s *Shared) forgetHosts(ctx context.Context, hosts []id.Host) ([]struct{}, error) {
	err := s.d.Q.ForgetSharedHosts(ctx, id.UUIDs(hosts...))
	return make([]struct{}, len(hosts)), err
}

// RecordHost stores what a host reports of its shared file systems. It leaves out what our agent would not send.
func (s *Shared) RecordHost(ctx context.Context, h id.Host, all []agentapi.SharedFS) error {
	p := dbq.RecordSharedHostParams{HostID: h, Names: []string{}, Markers: []string{}, FsTypes: []string{},
		SizesGb: []int64{}, Problems: []string{}}
	seen := map[string]bool{}
	for _, f := range all[:min(len(all), agentapi.MaxShared)] {
		if !NameShape.MatchString(f.Name) || seen[f.Name] || f.Marker != "" && !markerShape.MatchString(f.Marker) {
			continue
		}
		seen[f.Name] = true
		p.Names, p.Markers = append(p.Names, f.Name), append(p.Markers, f.Marker)
		p.FsTypes = append(p.FsTypes, text.Clip(agentapi.CleanText(f.Type), 30))
		p.SizesGb = append(p.SizesGb, min(max(f.SizeGB, 0), 1<<40))
		p.Problems = append(p.Problems, text.Clip(agentapi.CleanText(f.Problem), 500))
	}
	var err error
	if len(p.Names) == 0 {
		_, err = s.none.Do(ctx, h)
	} else {
		err = s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return tx.Q.RecordSharedHost(ctx, p) })
	}
	if err != nil {
		return fmt.Errorf("shared file systems of %s: %w", h, err)
	}
	return nil
}

// RecordUse stores what a host has measured and deleted of folders, and notifies organisations whose folders it has
// closed. What it says of file systems that it does not have is left out.
func (s *Shared) RecordUse(ctx context.Context, h id.Host, uses []agentapi.SharedUse) error {
	p := dbq.RecordSharedUseParams{HostID: h}
	seen := map[id.SharedData]bool{}
	for _, u := range uses {
		f, err := id.Parse[id.SharedData](u.Folder)
		if err != nil || seen[f] || u.Bytes < 0 {
			continue
		}
		seen[f] = true
		p.Folders = append(p.Folders, pgtype.UUID{Bytes: f.UUID(), Valid: true})
		p.Bytes, p.Closed, p.Erased = append(p.Bytes, u.Bytes), append(p.Closed, u.Closed), append(p.Erased, u.Erased)
		p.Problems = append(p.Problems, text.Clip(agentapi.CleanText(u.Problem), 500))
	}
	if len(p.Folders) == 0 {
		return nil
	}
	err := s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		closed, err := tx.Q.RecordSharedUse(ctx, p)
		if err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		for _, c := range closed {
			_, err := notify.Add(ctx, tx, notify.Notice{
				Org: c.OrgID, Severity: notify.Warn, Object: c.FolderID.String(),
				Key:   fmt.Sprintf("shared_closed:%s:%s", c.FolderID, now.UTC().Format(time.DateOnly)),
				Title: fmt.Sprintf("Your folder on %s is over its quota and cannot be written", c.Name),
				Body: fmt.Sprintf("It has %.1f GB of %d GB. It was made read-only in the clusters that have it. Start a cluster "+
					"with it and delete files: it can be written as long as it does not grow.", float64(c.Bytes)/1e9, c.QuotaGb),
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("use of shared folders on %s: %w", h, err)
	}
	return nil
}
