package client

import (
	"context"
	"net/http"
)

type zone struct {
	Zone string `json:"zone"`
}

// Zone returns the organisation's time zone, an IANA name such as Europe/Berlin. Its days, months and years are those
// of statements, earnings and documents.
func (c *Client) Zone(ctx context.Context) (string, error) {
	z, err := get[zone](ctx, c, "/org/zone", nil)
	return z.Zone, err
}

// SetZone sets the organisation's time zone. A name that is not known is an error.
func (c *Client) SetZone(ctx context.Context, name string) error {
	var out zone
	return c.call(ctx, http.MethodPut, "/org/zone", nil, zone{name}, &out)
}
