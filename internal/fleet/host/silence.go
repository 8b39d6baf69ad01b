package host

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

const (
	// massOperators is how many unlinked operators must have hosts that fell silent together.
	massOperators = 5
	// massPart: one in massPart of a listener's hosts and of its operators must have fallen silent, and no operator may
	// have more than one in massPart of those hosts.
	massPart = 5
)

// silence is what a listener's hosts with leases look like at a pulse.
type silence struct {
	hosts   int64
	sinceMS int64 // since when so many are silent that the listener is at fault (unix ms); 0: they are not
}

// operatorSilence is how many hosts of operators in one circle a listener has, and how many of them fell silent.
type operatorSilence struct{ hosts, silent int64 }

// massSilent reports whether hosts fell silent because of their listener. It counts operators: one that owns many hosts
// could make all of them silent, and so excuse the loss of other hosts. At least massOperators that are not linked must
// have silent hosts, none of them more than a fifth. all has one entry for each circle.
func massSilent(all []operatorSilence) bool {
	var hosts, silent, most, operators int64
	for _, o := range all {
		hosts, silent, most = hosts+o.hosts, silent+o.silent, max(most, o.silent)
		if o.silent > 0 {
			operators++
		}
	}
	return operators >= massOperators && most*massPart <= silent && silent*massPart >= hosts &&
		operators*massPart >= int64(len(all))
}

// massSilence returns what the hosts of a listener look like at nowMS (unix ms), and notifies admins of a listener that
// is at fault.
func massSilence(ctx context.Context, tx *db.Tx, listener string, rows []dbq.ListenerSilenceRow,
	nowMS int64) (s silence, err error) {
	var since int64
	var orgs []id.Org
	silent := 0
	for _, r := range rows {
		s.hosts += r.Hosts
		orgs = append(orgs, r.OrgID)
		if r.Silent > 0 {
			silent++
			if since == 0 || r.SinceMs < since {
				since = r.SinceMs
			}
		}
	}
	if silent < massOperators {
		return s, nil
	}
	circles, err := tx.Q.CirclesOf(ctx, id.UUIDs(orgs...))
	if err != nil {
		return s, fmt.Errorf("circles of operators: %w", err)
	}
	circleOf := make(map[id.Org]string, len(circles))
	for _, c := range circles {
		circleOf[id.FromUUID[id.Org](c.OrgID.Bytes)] = c.Circle
	}
	byCircle := map[string]operatorSilence{}
	for _, r := range rows {
		o := byCircle[circleOf[r.OrgID]]
		byCircle[circleOf[r.OrgID]] = operatorSilence{o.hosts + r.Hosts, o.silent + r.Silent}
	}
	all := make([]operatorSilence, 0, len(byCircle))
	for _, o := range byCircle {
		all = append(all, o)
	}
	if !massSilent(all) {
		return s, nil
	}
	again, err := tx.Q.MassGapSince(ctx, listener, nowMS-massRest.Milliseconds())
	if err != nil {
		return s, fmt.Errorf("earlier gaps of listener %s: %w", listener, err)
	}
	if again {
		return s, nil
	}
	s.sinceMS = since
	return s, notify.AddForAdmins(ctx, tx, notify.Notice{
		Key:      fmt.Sprintf("mass_silence:%s:%d", listener, since),
		Severity: notify.Warn,
		Title:    "Hosts of many operators fell silent together",
		Body: fmt.Sprintf("Hosts of %d operators with leases stopped reporting through the listener %s at %s UTC. For about "+
			"two minutes, no host of this listener counts as lost. Check the listener's network. If these operators belong "+
			"together, look at their hosts: another such gap is recorded after half an hour at the earliest.",
			silent, listener, time.UnixMilli(since).UTC().Format(time.DateTime)),
	})
}
