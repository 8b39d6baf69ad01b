package client

import (
	"context"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Standing is how far an organisation may pay in and rent. Amounts are in its currency.
type Standing struct {
	EmailVerified bool        `json:"email_verified"`
	CardVerified  bool        `json:"card_verified"`
	Limit         *money.Nano `json:"limit"` // before verification; nil: any amount
	Added         money.Nano  `json:"added"`
	Left          *money.Nano `json:"left"`
	State         string      `json:"state"`    // ok, disputed, suspended
	Disputed      money.Nano  `json:"disputed"` // of open disputes
	Short         money.Nano  `json:"short"`    // of Disputed, not set aside yet
	Debt          money.Nano  `json:"debt"`     // of lost disputes, not repaid yet
	// what may be added while a payment is disputed; nil: not limited by that
	DisputedLeft *money.Nano `json:"disputed_left"`
	LostDisputes int64       `json:"lost_disputes"`
}

// Standing reads the organisation's.
func (c *Client) Standing(ctx context.Context) (Standing, error) {
	return get[Standing](ctx, c, "/billing/standing", url.Values{})
}

// OrgStanding is an organisation with open disputes, or a suspended one.
type OrgStanding struct {
	Org     id.Org     `json:"org_id"`
	Name    string     `json:"name"`
	State   string     `json:"state"`
	Open    int64      `json:"open"`
	Lost    int64      `json:"lost"`
	Debt    money.Nano `json:"debt"`
	Changed time.Time  `json:"changed_at"`
}

// Standings lists organisations that are not in good standing. For platform operators.
func (c *Client) Standings(ctx context.Context) (Page[OrgStanding], error) {
	return get[Page[OrgStanding]](ctx, c, "/admin/standings", url.Values{})
}

// ForgiveDisputes lets an organisation's lost disputes no longer count towards a suspension. For platform operators.
func (c *Client) ForgiveDisputes(ctx context.Context, org id.Org, reason string) error {
	_, err := post[struct{}](ctx, c, "/admin/orgs/"+org.String()+"/forgive-disputes", map[string]string{"reason": reason})
	return err
}
