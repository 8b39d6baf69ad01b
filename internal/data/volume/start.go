package volume

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// beginsWith returns what a new session of a locked volume restores: nil if the volume is empty. All ranks of a start
// restore the same, whatever some of them have committed when the last one comes.
func beginsWith(ctx context.Context, tx *db.Tx, row dbq.Volume, who run, mode string,
	writer dbq.VolumeWritersRow) (*dbq.VolumeSnapshot, error) {
	if mode == agentapi.MountRanks && writer.StartEpoch == who.epoch {
		return one(tx.Q.SnapshotAt(ctx, row.ID, writer.StartSeq))
	}
	from, err := one(tx.Q.RestoreSnapshot(ctx, row.ID))
	if err != nil {
		return nil, fmt.Errorf("what a start of %s restores: %w", row.ID, err)
	}
	if from != nil && from.Seq != row.HeadSeq && mode != agentapi.MountRO {
		// What single ranks have saved since is no part of what goes on here.
		if _, err := copySnapshot(ctx, tx, *from, row.ID, row.HeadSeq+1, causeResume); err != nil {
			return nil, err
		}
		if from, err = one(tx.Q.SnapshotAt(ctx, row.ID, row.HeadSeq+1)); err != nil {
			return nil, err
		}
	}
	if mode != agentapi.MountRanks {
		return from, nil
	}
	start := int64(0)
	if from != nil {
		start = from.Seq
	}
	// The ranks of the start before are over, whether or not their hosts know.
	err = tx.Q.CloseDataSessions(ctx, row.ID, false, id.New[id.DataSession]())
	if err == nil {
		err = tx.Q.DropVolumeShards(ctx, row.ID)
	}
	if err == nil {
		err = tx.Q.StartVolumeRanks(ctx, who.epoch, start, row.ID)
	}
	if err != nil {
		return nil, fmt.Errorf("start the ranks of %s: %w", row.ID, err)
	}
	return from, nil
}

// causeResume is the cause of the snapshot that a start goes on from, if single ranks have saved theirs since.
const causeResume = "resume"

// one returns the only row, or nil.
func one(rows []dbq.VolumeSnapshot, err error) (*dbq.VolumeSnapshot, error) {
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return &rows[0], nil
}

// holdRank makes a session the one that writes a rank's copy. Which rank it is, the lease's row says.
func holdRank(ctx context.Context, tx *db.Tx, x dbq.DataSession, rank int32,
	from *dbq.VolumeSnapshot) error {
	var base []byte
	if from != nil {
		var err error
		if base, err = json.Marshal(wirePlace(refOf(*from))); err != nil {
			return err
		}
	}
	err := tx.Q.SetVolumeShard(ctx, dbq.SetVolumeShardParams{
		VolumeID: x.VolumeID, Rank: rank, SessionID: x.ID, Base: base,
	})
	if err != nil {
		return fmt.Errorf("hold rank %d of %s: %w", rank, x.VolumeID, err)
	}
	return nil
}

// wirePlace is the wire form of where a chunk is.
func wirePlace(r manifest.Ref) agentapi.PackPlace {
	return agentapi.PackPlace{ID: r.ID.String(), Pack: r.Pack, Offset: r.Offset, Length: r.Length, Size: r.Size}
}
