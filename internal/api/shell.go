package api

import (
	"context"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/fault"
)

type sshGatewayView struct {
	Address  string   `json:"address" doc:"host:port of the SSH gateway; ssh -p PORT CLUSTER.RANK@HOST"`
	HostKeys []string `json:"host_keys" doc:"the keys it shows, as in a known_hosts file, without the address"`
}

func (a *API) sshGateway(context.Context, account.Principal, *struct{}) (sshGatewayView, error) {
	if a.cfg.GatewayAddr == "" {
		return sshGatewayView{}, fault.New(fault.NotFound, "this platform has no SSH gateway")
	}
	return sshGatewayView{Address: a.cfg.GatewayAddr, HostKeys: a.cfg.SSHHostKeys}, nil
}
