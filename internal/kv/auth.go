package kv

import (
	"errors"
	"fmt"
)

const (
	// MaxNameBytes is the limit for the name of a user or a role. It is the longest key of a backup
	// in etcd's format, so etcd cannot have longer names either.
	MaxNameBytes = 32768
	// MaxPasswordBytes is the limit for a password that a client authenticates with. Bcrypt reads
	// only 72 bytes, and nobody can set a longer password; but old versions of etcd accepted longer
	// ones.
	MaxPasswordBytes = 4096
	// MaxAuthRecordBytes is the limit for the record of one user or one role, which each change
	// rewrites.
	MaxAuthRecordBytes = 16 << 20
	// MaxUsers and MaxRoles are the limits for users and for roles. All of them are in memory, and
	// each change copies the list.
	MaxUsers = 1 << 16
	MaxRoles = 1 << 16
)

// The errors of authentication and authorization.
var (
	// ErrRootUserNotExist: auth cannot be enabled without a user root.
	ErrRootUserNotExist = errors.New("root user does not exist")
	// ErrRootRoleNotExist: auth cannot be enabled while the user root does not have the role root.
	ErrRootRoleNotExist = errors.New("root user does not have root role")
	// ErrUserExists: a user with that name exists.
	ErrUserExists = errors.New("user name already exists")
	// ErrUserEmpty: a user has no name, or a request that requires a user has none.
	ErrUserEmpty = errors.New("user name is empty")
	// ErrUserNotFound: no user with that name exists.
	ErrUserNotFound = errors.New("user name not found")
	// ErrRoleExists: a role with that name exists.
	ErrRoleExists = errors.New("role name already exists")
	// ErrRoleNotFound: no role with that name exists.
	ErrRoleNotFound = errors.New("role name not found")
	// ErrRoleEmpty: a role has no name.
	ErrRoleEmpty = errors.New("role name is empty")
	// ErrAuthFailed: the user does not exist, has no password, or has another password.
	ErrAuthFailed = errors.New("authentication failed, invalid user ID or password")
	// ErrNoPasswordUser: the request gives a password for a user without one, or the hash is
	// malformed.
	ErrNoPasswordUser = errors.New("authentication failed, password was given for no password user")
	// ErrPermissionNotGiven: a grant names no permission.
	ErrPermissionNotGiven = errors.New("permission not given")
	// ErrPermissionDenied: the user may not do this.
	ErrPermissionDenied = errors.New("permission denied")
	// ErrRoleNotGranted: the user does not have the role.
	ErrRoleNotGranted = errors.New("role is not granted to the user")
	// ErrPermissionNotGranted: the role does not have the permission.
	ErrPermissionNotGranted = errors.New("permission is not granted to the role")
	// ErrAuthNotEnabled: no user can authenticate while auth is disabled.
	ErrAuthNotEnabled = errors.New("authentication is not enabled")
	// ErrAuthOldRevision: users or roles have changed since the request was checked; it had no
	// effect.
	ErrAuthOldRevision = errors.New("revision of auth store is old")
	// ErrInvalidAuthToken: the token is unknown, expired or not signed correctly.
	ErrInvalidAuthToken = errors.New("invalid auth token")
	// ErrInvalidAuthMgmt: the change would lock everyone out, or the range of the permission is not
	// valid.
	ErrInvalidAuthMgmt = errors.New("invalid auth management")
	// ErrNameTooLong: the name of a user or a role is longer than MaxNameBytes.
	ErrNameTooLong = fmt.Errorf("the name of a user or role is longer than the limit of %d bytes",
		MaxNameBytes)
	// ErrAuthRecordTooLarge: the roles of a user or the permissions of a role would take more than
	// MaxAuthRecordBytes.
	ErrAuthRecordTooLarge = fmt.Errorf("the roles of the user or the permissions of the role take more than the limit of %d bytes; use several roles", MaxAuthRecordBytes)
	// ErrTooManyUsers: another user would exceed MaxUsers.
	ErrTooManyUsers = fmt.Errorf("the limit for users is %d: delete some that are not used any more", MaxUsers)
	// ErrTooManyRoles: another role would exceed MaxRoles.
	ErrTooManyRoles = fmt.Errorf("the limit for roles is %d: delete some that are not used any more", MaxRoles)
	// ErrNotCapable: not all members know this kind of request yet.
	ErrNotCapable = errors.New("not capable")
)

// PermissionType says what a permission allows. The numbers are the API's.
type PermissionType int32

// The permissions of the API.
const (
	PermitRead PermissionType = iota
	PermitWrite
	PermitReadWrite
)

// String returns the API's name for a type, empty if it has none.
func (t PermissionType) String() string {
	switch t {
	case PermitRead:
		return "READ"
	case PermitWrite:
		return "WRITE"
	case PermitReadWrite:
		return "READWRITE"
	}
	return ""
}

// Permission allows something on the keys of [Key, End); the range is read as in RangeRequest.
type Permission struct {
	Type     PermissionType
	Key, End []byte
}

// AuthOp is the kind of an AuthRequest. The numbers are part of the log's format and never reused.
type AuthOp uint8

// The changes of users and roles.
const (
	AuthEnable AuthOp = iota + 1
	AuthDisable
	// Authenticate issues a token.
	Authenticate
	UserAdd
	UserDelete
	UserChangePassword
	UserGrantRole
	UserRevokeRole
	RoleAdd
	RoleDelete
	RoleGrantPermission
	RoleRevokePermission
	// TokensEnd ends tokens that were not used for their time to live. The leader proposes it.
	TokensEnd
)

// LastAuthOp is the kind with the largest number.
const LastAuthOp = TokensEnd

// AuthRequest changes users and roles, issues a token, or ends tokens. It never holds a password or
// a token.
type AuthRequest struct {
	Op AuthOp
	// User and Role are the names in the request; not every kind has both.
	User, Role string
	// Hash is the bcrypt hash of the password of UserAdd and UserChangePassword, in base64.
	Hash string
	// NoPassword: the user of UserAdd can authenticate by certificate only.
	NoPassword bool
	// Permission is granted by RoleGrantPermission; RoleRevokePermission uses only its range.
	Permission Permission
	// TokenHash is the hash of the secret part of the token that Authenticate issues, Revision the
	// auth revision at which the password was checked.
	TokenHash string
	Revision  uint64
	// Index, of TokensEnd: tokens issued by entries up to Index end on members where nobody used
	// them.
	Index uint64
}

// AuthResult answers an AuthRequest.
type AuthResult struct {
	// Revision is the newest revision of the store, which the request does not change.
	Revision int64
	// Index is the position in the log at which Authenticate issued a token, and Token the token.
	// Only the member that the client asked knows the token.
	Index uint64
	Token string
}

// AuthStatus says whether auth is enabled, and the revision of users and roles.
type AuthStatus struct {
	Enabled  bool
	Revision uint64
}
