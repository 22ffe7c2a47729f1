// This file lets the package declare functions of the runtime without a body.
