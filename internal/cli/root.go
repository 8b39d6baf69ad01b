package cli

import "github.com/spf13/cobra"

const helpByExample = `Muster rents GPU clusters by the second.

A first run, from nothing to a result:

  muster login https://muster.example        the token is asked for, never an argument
  muster billing topup 25                    add credit
  muster offers 'gpu_model=H100 vram_gb>=80' what can be rented, cheapest first
  muster quote --nodes 2 --gpus 4 --gpu gpu_model=H100
  muster cluster create --name train --nodes 2 --gpus 4 --gpu gpu_model=H100 \
      --image pytorch/pytorch:2.4.0 --budget 20 --wait -- python train.py
  muster cluster logs train --follow
  muster cluster usage train                 what it cost, segment by segment
  muster cluster release train

Selling instead: muster host enroll --region eu-west, then muster host set HOST --price 2.40.

Every command takes -o json. Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 no capacity, 5 no funds.
MUSTER_SERVER and MUSTER_TOKEN take the place of a login.`

// addPeople adds the commands for renters and host operators.
func addPeople(root *cobra.Command) {
	root.Long = helpByExample
	for _, make := range []func(*shell) *cobra.Command{
		loginCommand, offersCommand, quoteCommand, clusterCommand, hostCommand, billingCommand, statementCommand,
		budgetCommand, tokenCommand, sshKeyCommand, platformCommand,
		payoutCommand, documentCommand, orgCommand, accountCommand,
	} {
		s := &shell{}
		cmd := make(s)
		s.flags(cmd)
		root.AddCommand(cmd)
	}
}
