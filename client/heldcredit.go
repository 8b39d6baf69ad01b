package client

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// HeldCredit is a credit for a host's failure that waits for a person.
type HeldCredit struct {
	Lease    id.Lease   `json:"lease_id"`
	Cluster  id.Cluster `json:"cluster_id"`
	Rank     int        `json:"rank"`
	Host     id.Host    `json:"host_id"`
	HostName string     `json:"host_name"`
	Renter   id.Org     `json:"renter_org_id"`
	Operator id.Org     `json:"host_org_id"`
	Reason   string     `json:"reason"`
	From     time.Time  `json:"from"`
	To       time.Time  `json:"to"`
	Amount   money.Nano `json:"amount"` // what approving it credits
	Booked   money.Nano `json:"booked"` // what was credited without a decision
	Currency string     `json:"currency"`
	At       time.Time  `json:"at"`
}

// HeldCredits lists them, oldest first.
func (c *Client) HeldCredits(ctx context.Context) (Page[HeldCredit], error) {
	return get[Page[HeldCredit]](ctx, c, "/admin/held-credits", nil)
}

// DecideCredit approves or refuses the held credit of a lease.
func (c *Client) DecideCredit(ctx context.Context, l id.Lease, approve bool, reason string) error {
	_, err := post[map[string]any](ctx, c, "/admin/leases/"+l.String()+"/credit", map[string]any{
		"approve": approve,
		"reason":  reason,
	})
	return err
}
