package platform

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/server"
)

func natsConfigCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nats-config",
		Short: "Print what an external NATS cluster has to include in its configuration",
		Long: `Print accounts, limits and authorization for the NATS servers that MUSTER_NATS_URL names. They follow from
MUSTER_LINK_SECRET or MUSTER_SECRET, and hold public keys only.`,
		Example: "  muster server nats-config > muster.conf   # nats-server.conf: include muster.conf",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadServerConfig(cmd)
			if err != nil {
				return err
			}
			conf, err := server.NATSConfig(cfg)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), conf)
			return err
		},
	}
}
