package platform

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/server"
)

// demoCommand is muster demo.
func demoCommand() *cobra.Command {
	var f devFlags
	var exit bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole platform on this machine and play a renter's journey",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("listen") && portTaken(f.listen) {
				f.listen = "127.0.0.1:0" // another server on the usual port must not stop the demo
			}
			cfg, err := f.config(cmd)
			if err != nil {
				return err
			}
			say := cmd.ErrOrStderr()
			return runDev(cmd.Context(), cfg, say, func(ctx context.Context, info devstack.Info) (bool, error) {
				j := journey{info: info, out: say}
				if err := j.play(ctx); err != nil {
					return false, fmt.Errorf("the journey: %w", err)
				}
				return exit, json.NewEncoder(cmd.OutOrStdout()).Encode(j.result)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().BoolVar(&exit, "exit", false, "end after the journey")
	return cmd
}

func portTaken(addr string) bool {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return true
	}
	l.Close()
	return false
}

// demoResult is the last line of `make demo` on stdout.
type demoResult struct {
	Cluster             string      `json:"cluster"`
	Nodes               int         `json:"nodes"`
	GPUs                int         `json:"gpus"`
	RequestToRunningMS  int64       `json:"request_to_running_ms"`
	PreflightBusbwGbps  float64     `json:"preflight_busbw_gbps"`
	BillableMS          int64       `json:"billable_ms"`
	PricePerGPUHour     money.Micro `json:"price_per_gpu_hour"`
	Cost                money.Nano  `json:"cost"`
	LedgerBalanced      bool        `json:"ledger_balanced"`
	ParametersIdentical bool        `json:"parameters_identical"` // the job's result on every rank
}

// journey is one renter's way from sign-up to statement.
type journey struct {
	info   devstack.Info
	out    io.Writer
	result demoResult
}

func (j *journey) step(format string, args ...any) {
	fmt.Fprintf(j.out, "\n==> "+format+"\n", args...)
}

func (j *journey) printf(format string, args ...any) { fmt.Fprintf(j.out, "    "+format+"\n", args...) }

const (
	demoNodes = 2
	demoGPUs  = 4
	demoHash  = "params=" // of the job's last line: the hash of its parameters
)

func (j *journey) play(ctx context.Context) error {
	fmt.Fprintf(j.out, "\nA renter's journey, through the public API at %s\n", j.info.URL)
	c, err := j.signUp(ctx)
	if err != nil {
		return err
	}
	quote, err := j.choose(ctx, c)
	if err != nil {
		return err
	}
	cl, err := j.rent(ctx, c, quote)
	if err != nil {
		return err
	}
	if err := j.follow(ctx, c, cl); err != nil {
		return err
	}
	return j.settle(ctx, c, cl)
}

func (j *journey) signUp(ctx context.Context) (*client.Client, error) {
	j.step("sign up and add credit")
	anonymous, err := client.New(j.info.URL, "")
	if err != nil {
		return nil, err
	}
	email := fmt.Sprintf("demo-%d@muster.example", time.Now().UnixMilli())
	who, err := anonymous.Account.SignUp(ctx, client.SignUpRequest{Email: email, Password: "a sentence for the demo",
		Name: "demo"})
	if err != nil {
		return nil, err
	}
	c, err := client.New(j.info.URL, who.Token)
	if err != nil {
		return nil, err
	}
	t, err := c.Billing.CreateTopUp(ctx, client.CreateTopUpRequest{Amount: (50 * money.Unit).String()})
	if err != nil {
		return nil, err
	}
	j.printf("%s, org %s", email, who.Org.ID)
	j.printf("top-up of %s %s: %s (sandbox Stripe)", t.Amount, t.Currency, t.State)
	return c, nil
}

func (j *journey) choose(ctx context.Context, c *client.Client) (client.Quote, error) {
	const query = "gpu_model=H100 vram_gb>=80"
	j.step("search offers: %s", query)
	page, err := c.Offers.Search(ctx, client.OffersQuery{PageOf: client.PageOf{Limit: 10}, Q: query,
		Sort: "price_per_gpu_hour"})
	if err != nil {
		return client.Quote{}, err
	}
	for _, o := range page.Items {
		j.printf("%-10s %d of %d × %s  %s per GPU-hour", o.HostName, o.GPUsFree, o.GPUsTotal, o.GPUModel, o.PricePerGPUHour)
	}
	j.step("quote: %d nodes × %d GPUs, all or nothing, held while you decide", demoNodes, demoGPUs)
	q, err := c.Quotes.Create(ctx, client.Spec{
		Name: "demo", Nodes: demoNodes, GPUsPerNode: demoGPUs, GPU: query, Image: j.info.DemoImage,
		Command: []string{"train"}, Env: map[string]string{"TRAIN_STEPS": "3000"},
	})
	if err != nil {
		return q, err
	}
	for _, n := range q.Nodes {
		j.printf("rank %d on %s: %d GPUs, %s per hour", n.Rank, n.HostID, n.GPUs, n.PricePerHour)
	}
	j.printf("all-in %s per hour; held until %s", q.PricePerHour, q.ExpiresAt.Format(time.TimeOnly))
	return q, nil
}

func (j *journey) rent(ctx context.Context, c *client.Client, q client.Quote) (client.Cluster, error) {
	j.step("rent")
	began := time.Now()
	cl, err := c.Clusters.RentQuote(ctx, q.ID, client.Spec{})
	if err != nil {
		return cl, err
	}
	j.printf("cluster %s", cl.ID)
	seen := map[string]bool{}
	cl, err = c.Clusters.Wait(ctx, cl.ID, client.Running, func(now client.Cluster) {
		for _, n := range now.Nodes {
			line := fmt.Sprintf("rank %d: %-9s %s", n.Rank, n.State, n.Progress.Step)
			if n.Progress.WaitingFor != "" {
				line += ", waiting: " + n.Progress.WaitingFor
			}
			if !seen[line] {
				seen[line] = true
				j.printf("%6.2f s  %s", time.Since(began).Seconds(), line)
			}
		}
	})
	if err != nil {
		return cl, err
	}
	ran := cl.RunningAt.Sub(cl.CreatedAt)
	j.printf("running %.2f s after the request: the meter opened now, not before", ran.Seconds())
	j.printf("preflight: all-reduce over the overlay at %.2f Gbit/s bus bandwidth", cl.Network.BusbwGbps)
	j.result = demoResult{
		Cluster: cl.ID.String(), Nodes: len(cl.Nodes), GPUs: demoNodes * demoGPUs, RequestToRunningMS: ran.Milliseconds(),
		PreflightBusbwGbps: cl.Network.BusbwGbps, PricePerGPUHour: cl.PricePerHour / (demoNodes * demoGPUs),
	}
	return cl, nil
}

// follow shows what every rank prints until the job ends by itself, and checks that all ranks ended with one result.
func (j *journey) follow(ctx context.Context, c *client.Client, cl client.Cluster) error {
	j.step("the job's log, every rank")
	logs, err := c.Clusters.Logs(ctx, cl.ID, client.LogsOf{Follow: true})
	if err != nil {
		return err
	}
	defer logs.Close()
	results := map[string]int{}
	sc := bufio.NewScanner(logs)
	for n := 0; sc.Scan(); n++ {
		line := sc.Text()
		_, hash, done := strings.Cut(line, demoHash)
		if done {
			results[hash]++
		}
		if done || n < 12 || n%60 < 2 { // the beginning, now and then, and the end
			j.printf("%s", line)
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	for _, ranks := range results {
		j.result.ParametersIdentical = len(results) == 1 && ranks == demoNodes
	}
	if !j.result.ParametersIdentical {
		return fmt.Errorf("the ranks did not end with the same parameters: %v", results)
	}
	j.printf("every rank ended with the same parameters")
	return nil
}

func (j *journey) settle(ctx context.Context, c *client.Client, cl client.Cluster) error {
	j.step("release and statement")
	if _, err := c.Clusters.Release(ctx, cl.ID); err != nil {
		return err
	}
	u, err := settled(ctx, c, cl)
	if err != nil {
		return err
	}
	var sum money.Nano
	for _, s := range u.Segments {
		j.printf("rank %d  %s to %s  %9s s × %s per hour = %s", s.Rank, s.From.Format("15:04:05.000"),
			s.To.Format("15:04:05.000"), s.Seconds, s.PricePerHour, s.Cost)
		sum += s.Cost
	}
	if sum != u.Cost || u.Posted != u.Cost {
		return fmt.Errorf("lines add up to %s, the statement has %s, the ledger %s", sum, u.Cost, u.Posted)
	}
	j.result.BillableMS, j.result.Cost = int64(u.BillableSeconds), u.Cost
	j.printf("%s s billed, cost %s %s; the lines add up, difference 0", u.BillableSeconds, u.Cost, u.Currency)
	b, err := c.Billing.GetBalance(ctx)
	if err != nil {
		return err
	}
	if got := b.Available + b.Held + u.Cost; got != 50*money.Unit {
		return fmt.Errorf("wallet and cost add up to %s, not to the 50 that were paid in", got)
	}
	j.step("check the ledger")
	return j.checkLedger(ctx)
}

// settled waits until the hosts have proven every second and nothing will change any more.
func settled(ctx context.Context, c *client.Client, cl client.Cluster) (client.Usage, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		u, err := c.Clusters.GetUsage(ctx, cl.ID)
		if err != nil || u.Settled {
			return u, err
		}
		select {
		case <-ctx.Done():
			return u, errors.New("the cluster was not settled within a minute")
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (j *journey) checkLedger(ctx context.Context) error {
	t, err := server.CheckLedger(ctx, server.Config{DatabaseURL: server.SecretText(j.info.PostgresURL)})
	if err != nil {
		return err
	}
	j.result.LedgerBalanced = t.Balanced()
	j.printf("debits %s, credits %s nano-units: balanced %v", t.Debits, t.Credits, t.Balanced())
	if !t.Balanced() {
		return fmt.Errorf("the ledger does not balance: %v", t.Problems)
	}
	return nil
}
