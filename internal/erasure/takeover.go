package erasure

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/billing/payment"
	"github.com/musterhq/muster/internal/billing/payout"
	"github.com/musterhq/muster/internal/data/sharedfs"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// Takeover ends what a person who signed up with someone else's e-mail address left in an organisation, once that
// person has proved the address. Package account ends credentials itself.
type Takeover struct {
	Clusters *cluster.Clusters
	Hosts    *host.Hosts
	Cards    *payment.Cards
	Payouts  *payout.Payouts
}

// End releases the organisation's clusters, deletes its volumes, removes its buckets, templates, webhooks and cards,
// switches auto top-up off, drains its hosts and stops its payouts, and notifies it. Hosts take leases again once the
// owner resumes them; payouts continue once an admin does.
func (t Takeover) End(ctx context.Context, tx *db.Tx, org id.Org) error {
	for _, end := range []func(context.Context, *db.Tx, id.Org) error{
		t.Clusters.Rentals.EndTakenOver, t.Hosts.EndTakenOver, volume.EndTakenOver, t.Cards.EndTakenOver,
		t.Payouts.StopTakenOver, eraseTemplates, eraseWebhooks, eraseBuckets,
		sharedfs.EraseOrg,
	} {
		if err := end(ctx, tx, org); err != nil {
			return err
		}
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org:      org,
		Key:      "taken_over:" + org.String(),
		Severity: notify.Warn,
		Object:   org.String(),
		Title:    "You set a password before your e-mail address was verified: check your account",
		Body: "Someone else could have signed up with your address. Your new password therefore ended all sessions, API " +
			"tokens, SSH keys and unused enrolment tokens, released the clusters, deleted volumes, removed buckets, " +
			"templates, webhooks, cards and legal details, switched auto top-up off, and took hosts out of the market. " +
			"If hosts are yours, resume them on " +
			"their " +
			"pages; retire the others. Payouts continue when you have confirmed the payout account to us.",
	})
	return err
}

// eraseWebhooks removes the organisation's webhooks, which send its notices to a stranger's address.
func eraseWebhooks(ctx context.Context, tx *db.Tx, org id.Org) error {
	if err := tx.Q.EraseWebhooksOfOrg(ctx, org); err != nil {
		return fmt.Errorf("erase webhooks of %s: %w", org, err)
	}
	return nil
}

// eraseBuckets removes the organisation's buckets: what is written to a stranger's is the stranger's.
func eraseBuckets(ctx context.Context, tx *db.Tx, org id.Org) error {
	if err := tx.Q.EraseBucketsOfOrg(ctx, org); err != nil {
		return fmt.Errorf("erase buckets of %s: %w", org, err)
	}
	return nil
}

// eraseTemplates removes the organisation's templates: a stranger's start what the stranger chose.
func eraseTemplates(ctx context.Context, tx *db.Tx, org id.Org) error {
	if err := tx.Q.EraseTemplatesOfOrg(ctx, org); err != nil {
		return fmt.Errorf("erase templates of %s: %w", org, err)
	}
	return nil
}
