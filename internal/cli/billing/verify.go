package billing

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/internal/billing/billproof"
	"github.com/musterhq/muster/internal/cli/base"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func billingVerify(s *base.Session) *cobra.Command {
	var file, save string
	cmd := &cobra.Command{
		Use:   "verify [CLUSTER|LEASE]",
		Short: "Verify a bill: compute it from what the hosts signed, and compare",
		Long: "Downloads the signed segments, time anchors, windows, prices and postings of a cluster, or of one lease on " +
			"a host of\n" +
			"yours, and recomputes the bill on this machine. With --file it reads a proof that was saved before and needs no " +
			"network.",
		Example: "  muster billing verify cl_01jd9w6n3q… --save bill.json\n  muster billing verify --file bill.json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			raw, err := proofOf(s, cmd, args, file)
			if err != nil {
				return err
			}
			if save != "" {
				if err := os.WriteFile(save, raw, 0o600); err != nil {
					return err
				}
			}
			var f billproof.File
			if err := json.Unmarshal(raw, &f); err != nil {
				return fault.New(fault.Invalid, "this is no proof: %s", err)
			}
			v := billproof.Verify(f)
			if err := s.Show(cmd, v, func(p *base.Printer) { printVerdict(p, f, v) }); err != nil {
				return err
			}
			if n := len(v.Problems); n > 0 {
				return fault.New(fault.Conflict, "the proof does not hold: %d problems. Keep the file, and ask the platform "+
					"about it", n)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "file", "", "verify this saved proof; no network")
	cmd.Flags().StringVar(&save, "save", "", "write the proof to this file")
	return cmd
}

// proofOf reads the proof from the file, or asks for it.
func proofOf(s *base.Session, cmd *cobra.Command, args []string, file string) ([]byte, error) {
	if (file == "") == (len(args) == 0) {
		return nil, fault.New(fault.Invalid, "name a cluster or a lease, or a file with --file")
	}
	if file != "" {
		return os.ReadFile(file)
	}
	c := s.Client(cmd)
	l, lease := id.Parse[id.Lease](args[0])
	if lease == nil {
		return c.Clusters.GetLeaseProof(cmd.Context(), l)
	}
	cl, err := base.FindCluster(cmd.Context(), c, args[0])
	if err != nil {
		if strings.HasPrefix(args[0], "ls_") && fault.Is(err, fault.NotFound) {
			err = fault.New(fault.Invalid, "LEASE: %s", lease)
		}
		return nil, err
	}
	return c.Clusters.GetProof(cmd.Context(), cl)
}

func printVerdict(p *base.Printer, f billproof.File, v billproof.Verdict) {
	rows := make([][]string, len(v.Leases))
	for i, l := range v.Leases {
		rows[i] = []string{fmt.Sprint(l.Rank), l.Lease, fmt.Sprintf("%d.%03d", l.MS/1000, l.MS%1000), l.Renter.String(),
			l.Host.String(), (l.Renter - l.Host).String(), l.NotBooked.String()}
	}
	p.Table([]string{">RANK", "LEASE", ">SECONDS", ">" + f.Currency, ">HOST'S PART", ">FEE", ">NOT BOOKED YET"}, rows)
	for _, x := range v.Problems {
		p.Line("does not hold: %s", x)
	}
	if len(v.Problems) == 0 {
		p.Line("%d signatures hold, and the bill is what they prove.", v.Segments)
	}
	if v.Waiting > 0 {
		p.Line("%d postings are not in the chain yet: they come within a minute or two.", v.Waiting)
	}
	if v.Head != nil {
		p.Line("The chain ends with batch %d of %s, %s. Note it: a later proof must contain it.", v.Head.N,
			v.Head.MadeAt.Format(time.RFC3339), hex.EncodeToString(v.Head.Hash))
	}
}
