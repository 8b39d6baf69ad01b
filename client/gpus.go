package client

import (
	"context"
	"net/url"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// ContestedGPU is a GPU of a host whose UUID hosts of several organisations list.
type ContestedGPU struct {
	UUID string `json:"uuid" doc:"the GPU's UUID, as its driver reports it"`
	// Challenger: another organisation listed it earlier. Holder: listed first, and never rented there. Incumbent: listed
	// first and rented there, or awarded.
	Contest  string    `json:"contest" enum:"challenger,holder,incumbent"`
	Offered  bool      `json:"offered" doc:"whether it can be rented: only an incumbent can"`
	Model    string    `json:"model"`
	Host     id.Host   `json:"host_id"`
	HostName string    `json:"host_name"`
	Org      id.Org    `json:"org_id" doc:"the operator"`
	OrgName  string    `json:"org_name"`
	ListedAt time.Time `json:"listed_at" doc:"when the host listed it first"`
	// The evidence, for admins.
	Leases        int        `json:"leases,omitempty" doc:"billed to other organisations on this host; for admins"`
	BilledSeconds float64    `json:"billed_seconds,omitempty" doc:"for how long they were billed; for admins"`
	Awarded       bool       `json:"awarded,omitempty" doc:"whether it was awarded to this operator; for admins"`
	AwardReason   string     `json:"award_reason,omitempty" doc:"of the last award to any operator; for admins"`
	AwardedAt     *time.Time `json:"awarded_at,omitempty" doc:"of the last award to any operator; for admins"`
}

// ContestedGPUs lists the GPUs of your hosts that hosts of other organisations list, too, at most 200.
func (c *Client) ContestedGPUs(ctx context.Context) ([]ContestedGPU, error) {
	return contested(ctx, c, "/gpus/contested")
}

// AllContestedGPUs lists the GPUs that hosts of several organisations list, at most 200. GPUs with the same UUID are
// adjacent, in the order in which they were listed. For admins.
func (c *Client) AllContestedGPUs(ctx context.Context) ([]ContestedGPU, error) {
	return contested(ctx, c, "/admin/gpus/contested")
}

func contested(ctx context.Context, c *Client, path string) ([]ContestedGPU, error) {
	r, err := get[struct {
		Items []ContestedGPU `json:"items"`
	}](ctx, c, path, nil)
	return r.Items, err
}

// AwardGPU records that a GPU is the one that a host lists. Its GPU is offered, and those of other hosts that list the
// UUID are not. Both operators read the reason. For admins.
func (c *Client) AwardGPU(ctx context.Context, uuid string, to id.Host, reason string) error {
	_, err := post[struct{}](ctx, c, "/admin/gpus/"+url.PathEscape(uuid)+"/award",
		map[string]string{"host_id": to.String(), "reason": reason})
	return err
}
