package lockcmd

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vigil/client/concurrency"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
)

const electHelp = `Campaign in an election: wait until there is no leader, become leader, print the key of the leadership
and the proposal, and stay leader until the program is interrupted. With --listen, print the leader
whenever it changes.`

// Elect returns the command elect.
func Elect(env *cli.Env) *cobra.Command {
	var listen bool
	c := &cobra.Command{
		Use:     "elect <election-name> [proposal]",
		Short:   "Campaign in an election, or observe one",
		Long:    electHelp,
		Example: "  vigilctl elect scheduler \"$HOSTNAME\"\n  vigilctl elect --listen scheduler",
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case len(args) != 1 && len(args) != 2:
				return exit.Usage("elect takes one election name argument and an optional proposal argument")
			case len(args) == 1 && !listen:
				return exit.Usage("no proposal argument but -l not set")
			case len(args) == 2 && listen:
				return exit.Usage("proposal given but -l is set")
			}
			return env.RunUntilInterrupted(c, func(s cli.Session) error {
				if listen {
					return observe(env, s, args[0])
				}
				return campaign(env, s, args[0], args[1])
			})
		},
	}
	c.Flags().BoolVarP(&listen, "listen", "l", false, "only print the leader")
	return c
}

func observe(env *cli.Env, s cli.Session, name string) error {
	for leader, err := range concurrency.NewElection(s.Client, name).Observe(s.Ctx) {
		if s.Ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = printKey(env, s, leader.Key, leader.Revision)
		}
		if err != nil {
			return fmt.Errorf("elect: observer lost: %w", cli.CallError(err))
		}
	}
	return nil
}

// electionTTL is the time to live of a candidate's session. It is the same as in etcdctl.
const electionTTL = 60 * time.Second

func campaign(env *cli.Env, s cli.Session, name, proposal string) error {
	se, err := concurrency.NewSession(s.Ctx, s.Client, electionTTL)
	if err != nil {
		return err
	}
	defer closeSession(se)
	leadership, err := limited(s.Ctx, env.Timeout(), func() (*concurrency.Leadership, error) {
		return concurrency.NewElection(s.Client, name).Campaign(s.Ctx, se, []byte(proposal))
	})
	if err != nil {
		return err
	}
	if err = printKey(env, s, leadership.Key(), 0); err == nil {
		err = await(s.Ctx, &leadership.Held, "elect: session expired")
	}
	if lost := release(env, &leadership.Held); err == nil {
		err = lost
	}
	return err
}
