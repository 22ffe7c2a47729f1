package access

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/state/auth"
)

// rejectedLines is how many lines a second about rejected tokens are logged: anybody can send one.
const rejectedLines = 10

// LogChange logs, in etcd's lines, how a request changed users and roles, or why it did not. The
// apply goroutine calls it for each request about users and roles on every member, so that the log
// of each member shows who has which rights. No line has a password, its hash or a token.
func (c *Control) LogChange(before, after *auth.State, r *kv.AuthRequest, err error) {
	user, role := slog.String("user-name", r.User), slog.String("role-name", r.Role)
	roles := func(key string, s *auth.State) slog.Attr {
		u, _ := s.User(r.User)
		return slog.Any(key, append([]string{}, u.Roles...))
	}
	log := c.logger
	unchanged := before.Revision() == after.Revision() && before.Enabled() == after.Enabled()
	switch {
	case errors.Is(err, kv.ErrInvalidAuthMgmt):
		switch r.Op {
		case kv.UserDelete:
			log.Error("cannot delete 'root' user", user)
		case kv.UserRevokeRole:
			log.Error("'root' user cannot revoke 'root' role", user, role)
		case kv.RoleDelete:
			log.Error("cannot delete 'root' role", role)
		}
	case err != nil:
	case unchanged:
		switch r.Op {
		case kv.AuthEnable:
			log.Info("authentication is already enabled; ignored auth enable request")
		case kv.UserGrantRole:
			log.Warn("ignored grant role request to a user", user, roles("user-roles", after),
				slog.String("duplicate-role-name", r.Role))
		}
	case r.Op == kv.AuthEnable:
		log.Info("enabled authentication")
	case r.Op == kv.AuthDisable:
		log.Info("disabled authentication")
	case r.Op == kv.UserAdd:
		log.Info("added a user", user)
	case r.Op == kv.UserDelete:
		log.Info("deleted a user", user, roles("user-roles", before))
	case r.Op == kv.UserChangePassword:
		log.Info("changed a password of a user", user, roles("user-roles", after))
	case r.Op == kv.UserGrantRole:
		log.Info("granted a role to a user", user, roles("user-roles", after),
			slog.String("added-role-name", r.Role))
	case r.Op == kv.UserRevokeRole:
		log.Info("revoked a role from a user", user, roles("old-user-roles", before),
			roles("new-user-roles", after), slog.String("revoked-role-name", r.Role))
	case r.Op == kv.RoleAdd:
		log.Info("created a role", role)
	case r.Op == kv.RoleDelete:
		log.Info("deleted a role", role)
	case r.Op == kv.RoleGrantPermission:
		// The name of the field is etcd's; it is the role that gets the permission.
		log.Info("granted/updated a permission to a user", slog.String("user-name", r.Role),
			slog.String("permission-name", r.Permission.Type.String()),
			slog.String("key", string(r.Permission.Key)),
			slog.String("range-end", string(r.Permission.End)))
	case r.Op == kv.RoleRevokePermission:
		log.Info("revoked a permission on range", role,
			slog.String("key", string(r.Permission.Key)),
			slog.String("range-end", string(r.Permission.End)))
	}
}

// logRejected logs that a token was rejected, once for a call or a stream. The fingerprint is
// etcd's: it distinguishes tokens and is useless to a reader of the log.
func (c *Control) logRejected(cred *kv.Credentials) {
	if cred.Rejected.Swap(true) {
		return
	}
	ok, dropped := c.rejected.Allow(time.Now())
	if !ok {
		return
	}
	sum := sha256.Sum256([]byte(cred.Token))
	attrs := []any{slog.String("token-fingerprint", hex.EncodeToString(sum[:])[:12])}
	if dropped > 0 {
		attrs = append(attrs, slog.Uint64("lines left out", dropped))
	}
	c.logger.Warn("invalid auth token", attrs...)
}
