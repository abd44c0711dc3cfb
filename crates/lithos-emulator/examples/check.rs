//! Compiles a Metal text from a file in both builds and checks its address spaces: `check FILE`.

use lithos_emulator::Emulator;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("name a file")?;
    let text = std::fs::read_to_string(file)?;
    let emulator = Emulator::new()?;
    let library = emulator.compile(&text)?;
    library.compile_checked()?;
    emulator.check_address_spaces(&text)?;
    for kernel in library.kernels() {
        println!("{} at line {}: {} buffers", kernel.name, kernel.line, kernel.buffers().count());
    }
    Ok(())
}
