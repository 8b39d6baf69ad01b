package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// Times without a report after which another host that lists a GPU's UUID gets the GPU. In a cloud the same GPU
// belongs to one virtual machine after the other, and a machine that is deleted does not retire its host.
const (
	ownHostGone    = 5 * time.Minute     // the new host is of the same organisation
	othersHostGone = 24 * time.Hour      // it is of another one
	provenHostGone = 30 * 24 * time.Hour // it is of another one, and other organisations were billed for the GPU here
)

// holderGone reports whether the host that holds a GPU is gone, so that another host may have the GPU. A GPU with a
// claim stays, and so does one that admins awarded to the holder's organisation. Within an organisation it is enough
// that the holder's inventory does not list the GPU. Another operator must wait longer: a GPU that is off the bus for
// an hour, or a host that is switched off for a weekend, must not be lost to someone who knows the UUID.
func holderGone(h dbq.HoldersOfUUIDsRow) bool {
	silent := time.Duration(h.SilentS) * time.Second
	switch {
	case h.Claimed:
		return false
	case h.SameOrg:
		return !h.Present || silent >= ownHostGone
	case h.Awarded:
		return false
	case h.Proven:
		return silent >= provenHostGone
	}
	return silent >= othersHostGone
}

// takeOver removes a GPU from the host that holds it if that host is gone, records this, and notifies the organisation
// of that host if it is another one. It reports whether the UUID is free now.
func takeOver(ctx context.Context, tx *db.Tx, uuid string, holder dbq.HoldersOfUUIDsRow) (bool, error) {
	if !holderGone(holder) {
		return false, nil
	}
	n, err := tx.Q.RemoveGPU(ctx, holder.ID, holder.HostID)
	if err != nil {
		return false, fmt.Errorf("take %s over from %s: %w", uuid, holder.HostID, err)
	}
	if n == 0 { // it was claimed, or its host is in use by another transaction; the next inventory tries again
		return false, nil
	}
	e := contestEvent(holder.OrgID, holder.HostID, "gpu.moved", uuid)
	if err := audit.Record(ctx, tx, e); err != nil || holder.SameOrg {
		return true, err
	}
	now, err := tx.Now(ctx)
	if err != nil {
		return false, err
	}
	_, err = notify.Add(ctx, tx, notify.Notice{
		Org: holder.OrgID, Key: "gpu.moved:" + uuid + ":" + now.UTC().Format(time.DateOnly), Severity: notify.Warn,
		Title: fmt.Sprintf("GPU %s is another operator's now.", uuid),
		Body: fmt.Sprintf("A host of another operator lists this GPU, and your host %s has not reported for %d hours. If "+
			"the GPU is still yours, start the host again and write to us.", holder.HostName, holder.SilentS/3600),
		Object: holder.HostID.String(),
	})
	return true, err
}

// challengeAgain makes a challenger an ordinary GPU if the host that holds its UUID is gone by now, or no longer has
// it.
func challengeAgain(ctx context.Context, tx *db.Tx, host id.Host, gpu id.GPU, holder dbq.HoldersOfUUIDsRow) error {
	took, err := takeOver(ctx, tx, holder.UUID, holder)
	if err != nil || !took {
		return err
	}
	if err := tx.Q.SetContest(ctx, string(NotContested), id.UUIDs(gpu)); err != nil {
		return fmt.Errorf("take %s over: %w", holder.UUID, err)
	}
	return defend(ctx, tx, map[listing]id.GPU{{host, holder.UUID}: gpu})
}
