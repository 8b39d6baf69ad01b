package client

import (
	"context"
	"net/http"
	"time"

	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Postpaid is how an org pays afterwards.
type Postpaid struct {
	Org      id.Org     `json:"org_id"`
	Name     string     `json:"name,omitempty"`
	State    string     `json:"state"`             // on, ending, off
	Limit    money.Nano `json:"credit_limit"`      // used and not yet paid, at most
	Stopped  string     `json:"stopped,omitempty"` // why nothing more is lent although the state is on
	Reason   string     `json:"reason,omitempty"`  // of the last change
	Since    *time.Time `json:"since,omitempty"`
	Currency string     `json:"currency"`
	Used     money.Nano `json:"used"` // of Limit: used or held on credit, and billed and not paid
	Owed     money.Nano `json:"owed"` // of Used: billed and not paid
	Left     money.Nano `json:"left"` // what can be spent now
}

// Postpaid is the org's own.
func (c *Client) Postpaid(ctx context.Context) (Postpaid, error) {
	return get[Postpaid](ctx, c, "/billing/postpaid", nil)
}

// PostpaidOrgs lists who pays afterwards or did. It and ChangePostpaid are for platform operators.
func (c *Client) PostpaidOrgs(ctx context.Context, p PageOf) (Page[Postpaid], error) {
	return get[Page[Postpaid]](ctx, c, "/admin/postpaid", p.query())
}

// PostpaidChange switches paying afterwards on with a limit, or off.
type PostpaidChange struct {
	On     bool   `json:"on"`
	Limit  string `json:"credit_limit,omitempty"`
	Reason string `json:"reason"` // the org reads it
}

// ChangePostpaid changes an org's terms.
func (c *Client) ChangePostpaid(ctx context.Context, org id.Org, change PostpaidChange) (out Postpaid, err error) {
	return out, c.call(ctx, http.MethodPatch, "/admin/postpaid/"+org.String(), nil, change, &out)
}
