package cluster

import (
	"context"

	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// effects are what decisions about a locked cluster ask for beyond its own rows. A writer stores them.
type effects struct {
	raise  map[id.Host]bool // hosts whose desired state changes: they are woken
	freed  []*node          // nodes of which nothing is left: their claims end
	writes []write          // of meters, bonds and money, in order

	events    []dbq.InsertClusterEventParams
	notices   []notify.Notice
	strikes   []dbq.InsertStrikeParams
	undecided []undecided // suspensions
	suspended []dbq.InsertSuspensionParams
	silences  dbq.InsertSilencesParams
	bans      []ban
}

// write is a change outside the cluster's own rows, made in the writer's transaction.
type write func(ctx context.Context, w *writer) error

func (e *effects) addWrite(f write) { e.writes = append(e.writes, f) }
