package client

import "context"

// SSHGateway is where SSH into clusters goes: the user's name is the cluster's id, a dot and the rank.
type SSHGateway struct {
	Address  string   `json:"address"`   // host:port
	HostKeys []string `json:"host_keys"` // "ssh-ed25519 AAAA…"
}

// SSHGateway tells where it is. NotFound on a platform without one.
func (c *Client) SSHGateway(ctx context.Context) (SSHGateway, error) {
	return get[SSHGateway](ctx, c, "/ssh-gateway", nil)
}
