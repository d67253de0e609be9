/** The version of this package, which is that of the project. */
export const VERSION = "0.1.0";
